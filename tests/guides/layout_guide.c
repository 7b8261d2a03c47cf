/* layout_guide.c - the layout of docs/adding-a-data-layout.md is detected, has a word for --layout,
 * and reads both parts. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/image_set.h>

#include "support/folder.h"

enum { EACH = 20 };

Test(layout_guide, is_one_file, .init = make_folder, .fini = remove_folder)
{
    tp_layout layout;
    char name[64];
    cr_assert(tp_layout_find("flat", &layout) && layout == TP_LAYOUT_FLAT);
    cr_expect(strstr(TP_LAYOUT_WORDS, "|flat|"), "%s", TP_LAYOUT_WORDS);
    cr_assert_eq(mkdir(in_folder("flat"), 0777), 0);
    for (int i = 0; i < 2 * EACH; i++) {
        snprintf(name, sizeof name, "flat/%s-%02d.jpg", i % 2 ? "rose" : "lily", i / 2);
        write_text(name, ""); /* no content is ever read */
    }
    write_text("flat/notes.txt", "");
    for (int part = TP_TRAIN; part <= TP_VALID; part++) {
        tp_image_set *X = tp_image_set_open(folder, TP_LAYOUT_AUTO, (tp_part)part);
        cr_assert(tp_image_set_ok(X), "%s", tp_image_set_why(X));
        cr_expect(tp_image_set_layout(X) == TP_LAYOUT_FLAT && tp_image_set_classes(X) == 2);
        cr_expect_str_eq(tp_image_set_class(X, 0), "lily");
        cr_expect_eq(tp_image_set_count(X), part == TP_TRAIN ? 2 * EACH - 4 : 4);
        cr_expect_str_eq(tp_image_set_note(X),
                         "left out: 1 file that is neither .jpg, .jpeg nor .png (flat/notes.txt)");
        tp_image_set_close(X);
    }
}
