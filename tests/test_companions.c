/* test_companions.c - names of files and folders that systems and tools leave next to data. */
#include <criterion/criterion.h>

#include "data/companions.h"

Test(companions, are_named_wherever_they_stand_in_a_path)
{
    static const char *const path[] = { "._1.jpg",
                                        "cat/._1.jpg",
                                        "./train/cat/._1.jpg",
                                        "__MACOSX/cat/1.jpg",
                                        "set/__MACOSX/cat/1.jpg",
                                        "__MACOSX",
                                        "__MACOSX/",
                                        ".DS_Store",
                                        "cat/.DS_Store",
                                        ".hidden/1.jpg",
                                        ".ipynb_checkpoints/1-checkpoint.jpg",
                                        "cat/Thumbs.db",
                                        "cat/thumbs.db",
                                        "Desktop.ini",
                                        "@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg",
                                        "cat/1.txt:Zone.Identifier",
                                        "lost+found",
                                        "$RECYCLE.BIN/1.jpg",
                                        "System Volume Information/x",
                                        "...",
                                        "cat/Icon\r" };
    for (size_t i = 0; i < sizeof path / sizeof *path; i++)
        cr_expect(tp__companion(path[i]), "%s is a companion", path[i]);
}

Test(companions, are_not_what_only_resembles_them)
{
    static const char *const path[] = {
        "",         "/",           ".",           "..",       "./a.jpg",
        "../a.jpg", "cat/1.jpg",   "a..b/1.jpg",  "1._jpg",   "_._/1.jpg",
        "MACOSX/1", "__MACOSX2/1", "thumbs/1.db", "eaDir/1",  "1.Zone.Identifier",
        "Icon",     "lost/found",  "cat//1.jpg",  "a/./b.jpg"
    };
    for (size_t i = 0; i < sizeof path / sizeof *path; i++)
        cr_expect(!tp__companion(path[i]), "%s is no companion", path[i]);
}
