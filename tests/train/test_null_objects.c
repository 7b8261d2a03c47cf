/* test_null_objects.c - functions of data, detection, models and the engine do nothing with a NULL
 * object and return false, 0 or NULL. test_null.c covers the core, the modules and the messages. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/augment.h>
#include <tapegrad/bpe.h>
#include <tapegrad/clm.h>
#include <tapegrad/coat.h>
#include <tapegrad/coco.h>
#include <tapegrad/coco_eval.h>
#include <tapegrad/convnet.h>
#include <tapegrad/corrupt.h>
#include <tapegrad/cswin.h>
#include <tapegrad/cvt.h>
#include <tapegrad/data.h>
#include <tapegrad/detection/anchors.h>
#include <tapegrad/detection/assign.h>
#include <tapegrad/detection/boxes.h>
#include <tapegrad/detection/detector.h>
#include <tapegrad/detection/loader.h>
#include <tapegrad/detection/mask_rcnn.h>
#include <tapegrad/detection/masks.h>
#include <tapegrad/detection/objects.h>
#include <tapegrad/detection/proposals.h>
#include <tapegrad/detection/pyramid.h>
#include <tapegrad/detection/retinanet.h>
#include <tapegrad/document_loader.h>
#include <tapegrad/documents.h>
#include <tapegrad/image.h>
#include <tapegrad/image_set.h>
#include <tapegrad/labelled_texts.h>
#include <tapegrad/listops.h>
#include <tapegrad/lm.h>
#include <tapegrad/lra.h>
#include <tapegrad/mlm.h>
#include <tapegrad/model.h>
#include <tapegrad/mpvit.h>
#include <tapegrad/options.h>
#include <tapegrad/pvt.h>
#include <tapegrad/report.h>
#include <tapegrad/resnet.h>
#include <tapegrad/rle.h>
#include <tapegrad/roberta.h>
#include <tapegrad/scenes.h>
#include <tapegrad/swin.h>
#include <tapegrad/test_sets.h>
#include <tapegrad/train.h>
#include <tapegrad/vil.h>
#include <tapegrad/vit.h>
#include <tapegrad/vit_lsla.h>

Test(null_objects, data)
{
    tp_augment_bytes(NULL, NULL, NULL, 1, (tp_example){ 0 }, NULL);
    tp_augment_image(NULL, NULL, NULL, (tp_example){ 0 }, NULL);
    tp_augment_recipe(NULL, NULL, 1);
    tp_augment_work_free(NULL);
    tp_box_iou_xywh(NULL, 1, NULL, 1, NULL, NULL);
    cr_expect_null(tp_bpe_coder_vocabulary(NULL));
    cr_expect_null(tp_bpe_decode(NULL, NULL, 1, 1, NULL));
    cr_expect_null(tp_bpe_encode(NULL, NULL, 1, NULL));
    cr_expect_eq(tp_bpe_id(NULL, NULL), 0);
    cr_expect_eq(tp_bpe_merges(NULL), 0);
    cr_expect_null(tp_bpe_merges_text(NULL));
    tp_bpe_ok(NULL);
    tp_bpe_save(NULL, NULL, NULL, 1);
    cr_expect_eq(tp_bpe_size(NULL), 0);
    cr_expect_eq(tp_bpe_special_id(NULL, (tp_bpe_special){ 0 }), 0);
    cr_expect_null(tp_bpe_token(NULL, 1));
    tp_bpe_trainer_add(NULL, NULL, 1);
    tp_bpe_trainer_add_file(NULL, NULL, NULL, 1);
    cr_expect_null(tp_bpe_trainer_finish(NULL));
    cr_expect(strstr(tp_bpe_trainer_why(NULL), "NULL was given in place of"));
    cr_expect_null(tp_bpe_vocab_text(NULL));
    cr_expect(strstr(tp_bpe_why(NULL), "NULL was given in place of"));
    tp_bpe_words(NULL, 1, NULL, NULL);
    cr_expect_null(tp_streams_new(NULL, (tp_part){ 0 }, NULL));
    tp_streams_next(NULL, NULL, NULL, NULL);
    tp_streams_next_host(NULL, NULL, NULL);
    tp_streams_ok(NULL);
    cr_expect_eq(tp_streams_position(NULL), 0);
    tp_streams_seek(NULL, 1);
    cr_expect_eq(tp_streams_steps(NULL), 0);
    cr_expect(strstr(tp_streams_why(NULL), "NULL was given in place of"));
    cr_expect_eq(tp_coco_bytes(NULL), 0);
    cr_expect_eq(tp_coco_categories(NULL), 0);
    cr_expect_eq(tp_coco_category_id(NULL, 1), 0);
    cr_expect_null(tp_coco_category_name(NULL, 1));
    cr_expect_eq(tp_coco_dropped(NULL), 0);
    cr_expect_eq(tp_coco_eval_class(NULL, 1, 1), 0);
    cr_expect_eq(tp_coco_eval_classes(NULL), 0);
    tp_coco_eval_curve(NULL, 1, 1, 1, 1, NULL, NULL);
    cr_expect_eq(tp_coco_eval_figure(NULL, 1), 0);
    cr_expect_null(tp_coco_eval_new(NULL, NULL));
    tp_coco_eval_ok(NULL);
    cr_expect(strstr(tp_coco_eval_why(NULL), "NULL was given in place of"));
    cr_expect_eq(tp_coco_find_category(NULL, 1), 0);
    cr_expect_eq(tp_coco_find_image(NULL, 1), 0);
    cr_expect_null(tp_coco_image_at(NULL, 1));
    cr_expect_eq(tp_coco_images(NULL), 0);
    tp_coco_mask(NULL, NULL, NULL, NULL, 1);
    cr_expect_null(tp_coco_object_at(NULL, 1));
    cr_expect_eq(tp_coco_objects(NULL), 0);
    tp_coco_ok(NULL);
    cr_expect_null(tp_coco_polygon(NULL, NULL, 1, NULL));
    cr_expect(strstr(tp_coco_why(NULL), "NULL was given in place of"));
    cr_expect_eq(tp_corpus_bytes(NULL), 0);
    cr_expect_eq(tp_corpus_documents(NULL), 0);
    cr_expect_eq(tp_corpus_hash(NULL), 0);
    tp_corpus_ok(NULL);
    cr_expect_null(tp_corpus_open(NULL, 1, NULL, NULL));
    tp_corpus_read(NULL, (tp_part){ 0 }, 1, 1, NULL, NULL, 1);
    cr_expect_eq(tp_corpus_tokens(NULL, (tp_part){ 0 }), 0);
    tp_corpus_was_cached(NULL);
    cr_expect(strstr(tp_corpus_why(NULL), "NULL was given in place of"));
    tp_corrupt_find(NULL, NULL);
    cr_expect_eq(tp_corruption_errors(NULL, NULL), 0);
    cr_expect_eq(tp_delete_marks(NULL, 1, NULL), 0);
    tp_detections_add(NULL, NULL);
    cr_expect_null(tp_detections_at(NULL, 1));
    cr_expect_null(tp_detections_coco(NULL));
    cr_expect_eq(tp_detections_count(NULL), 0);
    cr_expect_eq(tp_detections_dropped(NULL), 0);
    cr_expect_null(tp_detections_from(NULL, NULL, 1, NULL));
    cr_expect_null(tp_detections_new(NULL));
    tp_detections_ok(NULL);
    cr_expect_null(tp_detections_open(NULL, NULL));
    cr_expect(strstr(tp_detections_why(NULL), "NULL was given in place of"));
    tp_detections_write(NULL, NULL, NULL, 1);
    cr_expect_eq(tp_loader_feed(NULL, NULL, 1, 1, NULL), 0);
    tp_document_loader_next(NULL, NULL);
    tp_loader_ok(NULL);
    tp_loader_seek(NULL, 1, 1);
    cr_expect_eq(tp_document_loader_slots(NULL), 0);
    cr_expect_eq(tp_loader_steps(NULL), 0);
    cr_expect(strstr(tp_loader_why(NULL), "NULL was given in place of"));
    tp_documents_add(NULL, 1, NULL, NULL);
    tp_documents_add_text(NULL, NULL, 1, NULL, NULL, 1, NULL);
    cr_expect_null(tp_documents_class(NULL, 1));
    cr_expect_eq(tp_documents_classes(NULL), 0);
    cr_expect_eq(tp_documents_count(NULL), 0);
    cr_expect_eq(tp_documents_hash(NULL), 0);
    cr_expect_null(tp_documents_ids(NULL, 1, 1, NULL));
    cr_expect_eq(tp_documents_label(NULL, 1), 0);
    cr_expect_null(tp_documents_labels(NULL));
    cr_expect_eq(tp_documents_longest(NULL), 0);
    cr_expect_null(tp_documents_name(NULL, 1));
    tp_documents_ok(NULL);
    cr_expect_eq(tp_documents_per_example(NULL), 0);
    cr_expect(strstr(tp_documents_why(NULL), "NULL was given in place of"));
    tp_image_affine(NULL, NULL, NULL, (tp_filter){ 0 }, NULL);
    tp_image_apply(NULL, (tp_pixel_op){ 0 }, 1, NULL, NULL);
    tp_image_centre(NULL, 1, 1);
    tp_image_copy(NULL, NULL);
    tp_image_corrupt(NULL, (tp_corrupt){ 0 }, 1, NULL, NULL);
    tp_image_crop(NULL, NULL, (tp_box){ 0 }, NULL);
    tp_image_decode(NULL, NULL, 1, NULL);
    tp_image_flip(NULL);
    tp_image_floats(NULL, NULL, NULL, NULL);
    tp_image_free(NULL);
    tp_image_new(NULL, 1, 1);
    tp_image_ok(NULL);
    tp_image_read(NULL, NULL, NULL);
    tp_image_resize(NULL, NULL, NULL, 1, 1, (tp_filter){ 0 });
    tp_image_resize_linear(NULL, NULL, 1, 1);
    tp_image_rotation(NULL, 1, NULL);
    cr_expect_null(tp_image_set_class(NULL, 1));
    cr_expect_eq(tp_image_set_classes(NULL), 0);
    cr_expect_eq(tp_image_set_count(NULL), 0);
    cr_expect_null(tp_image_set_from(NULL));
    cr_expect_eq(tp_image_set_hash(NULL), 0);
    cr_expect_eq(tp_image_set_label(NULL, 1), 0);
    tp_image_set_layout(NULL);
    cr_expect_null(tp_image_set_name(NULL, 1, NULL, 1));
    tp_image_set_ok(NULL);
    tp_image_set_prepare(NULL, 1, NULL, NULL, (tp_example){ 0 }, NULL);
    tp_image_set_thin(NULL, 1);
    cr_expect(strstr(tp_image_set_why(NULL), "NULL was given in place of"));
    tp_image_size(NULL, 1, NULL, NULL);
    tp_image_write(NULL, NULL);
    tp_in_top(NULL, 1, 1, NULL, 1);
    cr_expect_eq(tp_insert_marks(NULL, 1, 1, 1, (_Bool){ 0 }, NULL), 0);
    tp_label_lists_free(NULL);
    tp_label_lists_parse(NULL, NULL, NULL, 1, 1);
    tp_label_lists_read(NULL, NULL, 1);
    tp_layout_find(NULL, NULL);
    cr_expect_eq(tp_listops_draw(NULL, NULL, NULL, NULL), 0);
    tp_listops_evaluate(NULL, 1, NULL, NULL, 1);
    cr_expect_eq(tp_listops_read(NULL, 1, NULL, NULL, 1), 0);
    cr_expect_null(tp_image_loader_new(NULL, NULL));
    tp_image_loader_next(NULL, NULL);
    cr_expect_eq(tp_loader_skipped(NULL), 0);
    cr_expect_eq(tp_loader_waited(NULL), 0);
    tp_mix_draw(NULL, (tp_example){ 0 }, 1, 1);
    tp_mix_targets(NULL, 1, NULL, 1, 1, NULL);
    cr_expect_eq(tp_mlm_loader_targets(NULL), 0);
    cr_expect_null(tp_mlm_loader_new(NULL, NULL));
    tp_mlm_loader_next(NULL, NULL);
    cr_expect_null(tp_clm_loader_new(NULL, NULL));
    tp_clm_loader_next(NULL, NULL);
    cr_expect_eq(tp_clm_loader_windows(NULL), 0);
    cr_expect_eq(tp_bpe_token_bytes(NULL, 0), 0);
    cr_expect_eq(tp_mlm_loader_sequences(NULL), 0);
    cr_expect_eq(tp_rle_area(NULL), 0);
    tp_rle_box(NULL, NULL);
    tp_rle_free(NULL);
    tp_rle_from_box(NULL, NULL, 1, 1);
    tp_rle_from_counts(NULL, NULL, 1, 1, 1, NULL, 1);
    tp_rle_from_pixels(NULL, NULL, 1, 1);
    tp_rle_from_polygon(NULL, NULL, 1, 1, 1);
    tp_rle_from_string(NULL, NULL, 1, 1, 1, NULL, 1);
    tp_rle_iou(NULL, 1, NULL, 1, NULL, NULL);
    tp_rle_merge(NULL, NULL, 1, (_Bool){ 0 });
    tp_rle_pixels(NULL, NULL);
    cr_expect_eq(tp_rle_string(NULL, NULL, 1), 0);
    tp_examples_add(NULL, NULL);
    cr_expect_eq(tp_examples_count(NULL, (tp_part){ 0 }), 0);
    cr_expect_eq(tp_examples_feed(NULL, NULL, (tp_part){ 0 }, 1, 1, NULL), 0);
    cr_expect_eq(tp_examples_hash(NULL), 0);
    cr_expect_null(tp_examples_new(1, NULL, NULL));
    tp_examples_ok(NULL);
    cr_expect_eq(tp_examples_steps(NULL, (tp_part){ 0 }), 0);
    cr_expect(strstr(tp_examples_why(NULL), "NULL was given in place of"));
    cr_expect_null(tp_scenes_coco(NULL));
    tp_scenes_draw(NULL, 1, NULL);
    tp_scenes_ok(NULL);
    cr_expect(strstr(tp_scenes_why(NULL), "NULL was given in place of"));
    cr_expect_null(tp_table_cell(NULL, 1, 1));
    cr_expect_eq(tp_table_columns(NULL), 0);
    cr_expect_null(tp_table_heading(NULL, 1));
    cr_expect_eq(tp_table_label(NULL, 1, 1), 0);
    cr_expect_null(tp_table_label_name(NULL, 1, 1));
    cr_expect_eq(tp_table_labels(NULL, 1), 0);
    tp_table_ok(NULL);
    cr_expect_eq(tp_table_rows(NULL), 0);
    cr_expect(strstr(tp_table_why(NULL), "NULL was given in place of"));
    cr_expect_null(tp_task_find(NULL));
    cr_expect_eq(tp_test_set_predict((tp_test_set){ 0 }, NULL), 0);
    cr_expect_eq(tp_text_bytes(NULL, (tp_part){ 0 }), 0);
    cr_expect_null(tp_text_ids(NULL, (tp_part){ 0 }, NULL));
    tp_text_ok(NULL);
    cr_expect(strstr(tp_text_why(NULL), "NULL was given in place of"));
    tp_vocab_build(NULL, (tp_text_style){ 0 }, NULL, 1);
    tp_vocab_load(NULL, NULL, (tp_text_style){ 0 }, NULL, 1);
    tp_vocab_parse(NULL, NULL);
    tp_vocab_print(NULL, NULL, 1);
}

Test(null_objects, detection)
{
    tp_anchor_cells(NULL, 1, NULL);
    tp_anchor_check(NULL, NULL, 1);
    tp_anchors(NULL, 1, 1, 1, NULL);
    tp_backbone_channels(NULL, NULL);
    tp_backbone_check(NULL, NULL, 1);
    tp_backbone_forward(NULL, NULL, TP_NONE, NULL);
    tp_backbone_preset(NULL, NULL, (tp_detection_profile){ 0 }, NULL, 1);
    tp_backbone_set(NULL, 1, (tp_recompute){ 0 });
    tp_box_decode(NULL, (tp_corners){ 0 }, NULL);
    tp_box_decode_grad(NULL, (tp_corners){ 0 }, NULL, (tp_corners){ 0 }, NULL);
    tp_box_encode(NULL, (tp_corners){ 0 }, (tp_corners){ 0 }, NULL);
    tp_box_head_forward(NULL, NULL, TP_NONE, NULL, NULL);
    tp_box_head_losses(NULL, NULL, TP_NONE, TP_NONE, NULL, NULL, NULL, NULL);
    tp_corners_from_xywh(NULL);
    tp_corners_iou_all(NULL, 1, NULL, 1, NULL);
    tp_corners_xywh((tp_corners){ 0 }, NULL);
    tp_detected_to_original(NULL, NULL, NULL);
    cr_expect_not(tp_detector_change(NULL, NULL, NULL, NULL, 1));
    tp_detector_check(NULL, NULL, 1);
    tp_detector_detect(NULL, NULL, NULL, NULL);
    tp_detector_has_masks(NULL);
    tp_detector_init(NULL, NULL, NULL, NULL);
    tp_detector_limit(NULL, 1, 1);
    cr_expect_not(tp_detector_load_backbone(NULL, NULL, NULL, NULL, 1));
    tp_detector_losses(NULL, NULL, NULL);
    cr_expect_eq(tp_detector_matched(NULL, 1, 1, NULL, 1), 0);
    cr_expect_null(tp_detector_parts_of(NULL).backbone);
    cr_expect_null(tp_detector_kind_of(NULL));
    tp_detector_planned(NULL, NULL, NULL, NULL, 1);
    tp_detector_preset(NULL, NULL, 1, (tp_detection_profile){ 0 }, NULL, 1);
    tp_fpn_check(NULL, NULL, 1);
    tp_fpn_of(NULL, 1, (tp_fpn_top){ 0 });
    tp_mask_head_loss(NULL, TP_NONE, NULL);
    tp_mask_rcnn_sizes(NULL, 1, 1);
    tp_mask_target(NULL, NULL, 1, (tp_corners){ 0 }, 1, NULL);
    tp_mask_target_from_pixels(NULL, 1, 1, (tp_corners){ 0 }, 1, NULL);
    tp_match(NULL, NULL, 1, 1, NULL, NULL);
    tp_match_boxes(NULL, NULL, 1, NULL, 1, NULL, NULL);
    cr_expect_eq(tp_nms(NULL, NULL, NULL, 1, 1, (tp_detection_profile){ 0 }, NULL), 0);
    cr_expect_eq(tp_object_loader_images(NULL), 0);
    tp_object_loader_largest(NULL, NULL);
    tp_object_loader_unread(NULL, 1);
    cr_expect_null(tp_object_loader_new(NULL, NULL));
    tp_object_loader_next(NULL, NULL);
    cr_expect_eq(tp_object_source_hash(NULL), 0);
    tp_object_source_read(NULL, 1, NULL);
    tp_paste_mask(NULL, 1, (tp_corners){ 0 }, 1, 1, 1, NULL);
    tp_paste_rle(NULL, 1, (tp_corners){ 0 }, 1, 1, 1, NULL);
    tp_retinanet_default(NULL, 1, (tp_detection_profile){ 0 });
    tp_retinanet_detect_of(NULL, NULL, NULL, NULL, NULL);
    tp_retinanet_head_forward(NULL, NULL, NULL);
    tp_retinanet_losses_of(NULL, NULL, NULL, NULL, NULL);
    tp_rpn_losses(NULL, NULL, NULL, NULL, NULL, NULL);
    tp_rpn_match(NULL, NULL, NULL, NULL, NULL);
    tp_rpn_propose(NULL, NULL, NULL, NULL, (_Bool){ 0 }, NULL);
    cr_expect_eq(tp_sample_boxes(NULL, NULL, 1, 1, NULL, NULL, NULL), 0);
    cr_expect_eq(tp_select_boxes(NULL, NULL, NULL, NULL, 1, 1, NULL), 0);
    cr_expect_eq(tp_select_proposals(NULL, NULL, 1, NULL), 0);
    cr_expect_eq(tp_select_retinanet(NULL, NULL, 1, 1, NULL), 0);
    tp_shortest_side((tp_detection_profile){ 0 }, 1, 1, 1, 1, NULL);
    cr_expect_eq(tp_found_to_original(NULL, 1, NULL, NULL), 0);
    cr_expect_eq(tp_top_scores(NULL, 1, 1, NULL), 0);
    tp_view_box(NULL, NULL);
    tp_view_floats(NULL, NULL, 1, 1, NULL);
    tp_view_image(NULL, NULL, NULL);
}

Test(null_objects, models)
{
    tp_lra_packs(NULL);
    tp_model_adopt(NULL, NULL, NULL, 1);
    tp_model_check(NULL, NULL, 1);
    cr_expect_null(tp_model_find(NULL));
    cr_expect_eq(tp_model_cost(NULL, 1, 1).macs, 0);
    cr_expect_eq(tp_model_saved_bytes(NULL, 1, 1, TP_BF16), 0);
    cr_expect_not(tp_members_change(NULL, NULL, NULL, NULL, NULL, 1));
    cr_expect_not(tp_model_change(NULL, NULL, NULL, NULL, 1));
    tp_model_member_get(NULL, NULL, NULL, 1);
    tp_model_member_type(NULL, NULL, 1);
    cr_expect_null(tp_model_cfg_of(NULL, NULL).model);
    cr_expect_null(tp_model_cfg_of(&tp_model_vit, NULL).model);
    tp_model_preset(NULL, NULL, NULL, 1);
    tp_model_read(NULL, NULL, NULL, 1);
    tp_model_read_cfg(NULL, NULL, NULL, NULL, 1);
    tp_model_same(NULL, NULL);
    tp_model_input_shape(NULL, 1, 1);
    tp_model_write(NULL, NULL);
    tp_model_write_cfg(NULL, NULL, NULL);
    tp_net_heads(NULL, NULL, TP_NONE, NULL);
    tp_resize_positions(NULL, TP_NONE, 1, NULL, NULL, (tp_interpolation){ 0 });
    tp_roberta_copy_global(NULL, NULL);
    tp_roberta_global_tokens(NULL, NULL, 1, 1);
    tp_vil_resize(NULL, NULL, NULL, NULL, 1);
}

Test(null_objects, engine)
{
    tp_absolute_path(NULL);
    cr_expect_null(tp_option_find(NULL, NULL));
    tp_option_get(NULL, NULL, NULL, 1);
    tp_option_set(NULL, NULL, NULL, NULL, 1);
    tp_options_copy(NULL, NULL, NULL);
    tp_options_differ(NULL, NULL, NULL, 1, NULL, NULL, 1);
    tp_options_free(NULL, NULL);
    tp_options_help(NULL, NULL, NULL);
    cr_expect_eq(tp_options_list(NULL, NULL), 0);
    cr_expect_eq(tp_options_parse(NULL, 1, NULL, NULL, NULL), 0);
    tp_options_read(NULL, NULL, NULL, NULL, 1);
    tp_options_write(NULL, NULL, NULL);
    tp_report_write(NULL, NULL, 1, NULL, 1);
    cr_expect_null(tp_run_events(NULL));
    tp_run_fail(NULL, NULL);
    tp_run_left_out(NULL, NULL, NULL);
    tp_run_note(NULL, NULL, 1);
    tp_run_note_int(NULL, NULL, 1);
    tp_run_note_text(NULL, NULL, NULL);
    tp_run_sum(NULL, 1, NULL);
    tp_run_ok(NULL);
    cr_expect_null(tp_run_path(NULL, NULL, NULL, 1));
    tp_run_say(NULL, NULL);
    tp_run_stopped(NULL);
    tp_ticker_draw(NULL, 1, NULL);
    tp_ticker_due(NULL);
    tp_ticker_end(NULL);
    tp_train_settings zero = tp_train_defaults(NULL);
    cr_expect(!zero.run_dir && !zero.machine.device);
    cr_expect_eq(tp_train_get(&zero, "beta2"), 0.999, "usual values, without texts");
    cr_expect_not(tp_train_choose(NULL, "adam") || tp_train_choose(&zero, NULL));
    cr_expect_not(tp_train_set(NULL, "eps", 1) || tp_train_set(&zero, NULL, 1));
    cr_expect(isnan(tp_train_get(NULL, "eps")) && isnan(tp_train_get(&zero, "lr")));
    cr_expect_null(tp_train_optimizer(NULL, NULL, (_Bool){ 0 }, NULL, NULL));
    cr_expect_eq(tp_train_rate(NULL, 1, 1), 0);
    tp_trained_close(NULL);
    cr_expect(tp_trained_printed(NULL));
    tp_trained_fail(NULL, NULL);
    tp_trained_find(NULL);
    tp_trained_ok(NULL);
    tp_trained_open(NULL, NULL, 1, (_Bool){ 0 });
    tp_was_given(NULL, NULL);
}
