/* test_null_calls.c - NULL in place of objects, texts and arrays in the libraries around the core:
 * an answer or one message, never a crash. tests/autograd/test_null.c has the core's. */
#include <criterion/criterion.h>
#include <string.h>
#include <tapegrad/augment.h>
#include <tapegrad/bpe.h>
#include <tapegrad/coco.h>
#include <tapegrad/data.h>
#include <tapegrad/dataset.h>
#include <tapegrad/detection/detector.h>
#include <tapegrad/detection/loader.h>
#include <tapegrad/detection/objects.h>
#include <tapegrad/lm.h>
#include <tapegrad/loader.h>
#include <tapegrad/mlm.h>
#include <tapegrad/model.h>
#include <tapegrad/peers.h>
#include <tapegrad/tapegrad.h>
#include <tapegrad/train.h>

Test(null_calls, texts_and_files)
{
    char text[200] = "", *end = text;
    const char *none = NULL;
    size_t n = 3;
    cr_expect_eq(tp_number_read(NULL, &end), 0.0);
    cr_expect_null(end);
    cr_expect_eq(tp_number_write(NULL, 0, 0.1, 3), 3);
    cr_expect_eq(tp_number_write(NULL, 7, -1.5, 1), 4);
    cr_expect_str_eq(tp_plain(NULL, text, sizeof text), "");
    cr_expect_str_eq(tp_plain("x", NULL, 3), "");
    cr_expect_not(tp_skip_bom(&none, &n, text, sizeof text));
    cr_expect_str_eq(text, "NULL was given in place of a text");
    cr_expect_not(tp_skip_bom(NULL, NULL, NULL, 9));
    none = "a\0b";
    cr_expect_not(tp_skip_bom(&none, &n, NULL, 9));
    cr_expect_str_eq(tp_json_reason(NULL), "");
    cr_expect_eq(tp_open_temporary(NULL, text, sizeof text), -1);
    cr_expect_eq(tp_open_temporary("x", NULL, 8), -1);
}

Test(null_calls, data)
{
    char text[200] = "";
    float x[2] = { 1, 2 };
    tp_mix_apply(NULL, x, 2, 1, 1, 1);
    tp_mix_apply(&(tp_mixing){ .lambda = 0.5 }, NULL, 2, 1, 1, 1);
    cr_expect(x[0] == 1 && x[1] == 2);
    static const char *const missing[][3] = { { NULL, "{}", "" },
                                              { "n", NULL, "" },
                                              { "n", "{}", NULL } };
    static const char *const named[] = { "a name", "a vocabulary", "a list of merges" };
    for (int i = 0; i < 3; i++) {
        tp_bpe *X = tp_bpe_from(missing[i][0], missing[i][1], missing[i][2], NULL);
        cr_expect(strstr(tp_bpe_why(X), named[i]), "%d: %s", i, tp_bpe_why(X));
        tp_bpe_close(X);
    }
    for (int i = 0; i < 2; i++) {
        tp_bpe *X = i == 0 ? tp_bpe_from_json(NULL, "{}") : tp_bpe_from_json("n", NULL);
        cr_expect(strstr(tp_bpe_why(X), i == 0 ? "a name" : "a text"), "%s", tp_bpe_why(X));
        tp_bpe_close(X);
    }
    tp_coco_tally_add(NULL, TP_COCO_CROWD, 1);
    cr_expect_eq(tp_coco_tally_text(NULL, "box", text, sizeof text), 0);
    cr_expect_eq(tp_coco_runs(NULL, NULL).runs, 0);
    cr_expect_not(tp_vocab_knows(NULL, 'a'));
    cr_expect_eq(tp_text_unknown(NULL, TP_TRAIN) + tp_corpus_unknown(NULL), 0);
    tp_loader *L = tp_loader_new(NULL);
    cr_expect_not(tp_loader_ok(L));
    cr_expect_str_eq(tp_loader_why(L), "loader: NULL was given in place of a kind");
    tp_loader_free(L);
}

Test(null_calls, data_sets)
{
    static const char none[] = "dataset: NULL was given in place of the path of a file";
    static const char missing[] = "dataset: NULL was given in place of a data set";
    tp_dataset *const all[] = { tp_dataset_csv(NULL, NULL), tp_dataset_json_lines(NULL, NULL),
                                tp_dataset_file(NULL, NULL) };
    char why[100];
    for (int i = 0; i < 3; i++) {
        cr_expect_str_eq(tp_dataset_why(all[i]), none);
        cr_expect_eq(tp_dataset_classes(all[i], "x"), 0);
        cr_expect_null(tp_dataset_field(all[i], 0));
        tp_dataset_free(all[i]);
    }
    cr_expect_str_eq(tp_dataset_why(NULL), missing);
    cr_expect(!tp_dataset_ok(NULL) && tp_dataset_code(NULL) == TP_E_STATE);
    cr_expect_eq(tp_dataset_count(NULL) + tp_dataset_classes(NULL, NULL), 0);
    cr_expect_null(tp_dataset_field(NULL, 0));
    cr_expect_null(tp_dataset_class(NULL, "x", 0));
    cr_expect_null(tp_dataset_labels(NULL, NULL));
    tp_dataset_free(NULL);
    tp_dataset *X = tp_dataset_choose(NULL, NULL, 1);
    cr_expect_str_eq(tp_dataset_why(X), missing);
    tp_dataset_free(X);
    cr_expect_not(tp_dataset_each(NULL, NULL, NULL, why, sizeof why));
    cr_expect_not(tp_dataset_each(NULL, NULL, NULL, NULL, 0));
    cr_expect_eq(tp_split_numbers(3, TP_TRAIN, NULL, NULL, NULL, 0), 0);
    cr_expect_eq(tp_row_real(NULL, "x"), 0.0);
    cr_expect_eq(tp_row_int(NULL, NULL) + tp_row_length(NULL, "x") + tp_row_label(NULL, "x"), 0);
    cr_expect_str_eq(tp_row_text(NULL, "x"), "");
    cr_expect_not(tp_row_is_empty(NULL, "x") || tp_row_read(NULL, "x", 1, TP_F32, NULL) ||
                  tp_row_fail(NULL, "x"));
    cr_expect_null(tp_row_json(NULL));
    cr_expect_null(tp_row_loader_new(NULL, NULL, NULL));
}

Test(null_calls, detectors)
{
    char text[200] = "";
    const tp_rle mask = { 0 };
    tp_rle to;
    bool missing;
    cr_expect_not(tp_detector_at(0, NULL));
    cr_expect_eq(tp_object_source_look(NULL, true, &missing, text, sizeof text), -1);
    cr_expect_str_eq(text, "NULL was given in place of a source");
    tp_view_outline(NULL, NULL, 4, NULL);
    cr_expect_not(tp_view_mask(NULL, &mask, &to));
    cr_expect_eq(tp_padded_side(7, 0), 7);
}

Test(null_calls, models)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_part_init(P, NULL, NULL, NULL, "m", NULL);
    cr_expect_str_eq(tp_params_why(P), "model NULL has no part called 'NULL'");
    tp_part_forward(T, NULL, "block", NULL, NULL, TP_NONE);
    cr_expect(strstr(tp_why(T), "model NULL has no part called 'block'"), "%s", tp_why(T));
    tp_part_forward(NULL, NULL, NULL, NULL, NULL, TP_NONE);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

Test(null_calls, processes)
{
    char byte = 1;
    size_t bytes = 0;
    tp_peers *G = tp_peers_new(NULL, NULL);
    cr_expect_not(tp_peers_ok(G));
    cr_expect_str_eq(tp_peers_why(G), "peers: NULL was given in place of a transport");
    tp_peers_close(G);
    cr_expect_not(tp_peers_gather(NULL, NULL, 1, NULL));
    cr_expect_not(tp_peers_send(NULL, 0, &byte, 1) || tp_peers_receive(NULL, 0, &byte, 1));
    cr_expect_not(tp_run_collect(NULL, &byte, 1, NULL, &bytes));
}
