/* test_companions.c - files and folders that systems and tools leave next to data. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/files.h"
#include "data/tree.h"
#include "support/folder.h"

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

/* ---- folders and archives ---- */

static char seen[4096];

static bool note_wanted(void *env, const char *name)
{
    (void)env;
    strcat(strcat(seen, name), " ");
    return true;
}

static bool note_taken(void *env, const char *name, const uint8_t *bytes, size_t n)
{
    (void)env;
    (void)name;
    (void)bytes;
    (void)n;
    return true;
}

/* The names a visit accepts, in order. */
static const char *visited(const char *path)
{
    char why[512] = "";
    const tp_tree t = {
        .wants = note_wanted, .take = note_taken, .most = 100, .why = why, .size = sizeof why
    };
    seen[0] = '\0';
    cr_assert(tp__tree_visit(path, &t), "%s", why);
    return seen;
}

static void in_shell(const char *command)
{
    char text[2048];
    snprintf(text, sizeof text, "cd %s && %s", folder, command);
    cr_assert(system(text) == 0, "%s", text); /* NOLINT(cert-env33-c) */
}

Test(companions, folders_and_archives_pass_over_them, .init = make_folder, .fini = remove_folder)
{
    in_shell("mkdir -p set/cat set/__MACOSX/cat set/.git set/@eaDir/1.txt set/lost+found &&"
             " cd set && touch cat/1.txt cat/._1.txt cat/.DS_Store cat/Thumbs.db ._cat "
             "__MACOSX/cat/._1.txt __MACOSX/2.txt .git/3.txt @eaDir/1.txt/a.txt lost+found/b.txt "
             "cat/1.txt:Zone.Identifier z.txt");
    cr_expect_str_eq(visited(in_folder("set")), "cat/1.txt z.txt ");
    in_shell("tar --sort=name -cf set.tar set && cd set && tar --sort=name -czf ../here.tar.gz .");
    cr_expect_str_eq(visited(in_folder("set.tar")), "set/cat/1.txt set/z.txt ");
    cr_expect_str_eq(visited(in_folder("here.tar.gz")), "cat/1.txt z.txt ");
}

Test(companions, a_hidden_folder_may_be_the_set, .init = make_folder, .fini = remove_folder)
{
    in_shell("mkdir -p .cache/__MACOSX/set && touch .cache/__MACOSX/set/1.txt &&"
             " tar -cf .cache/._set.tar -C .cache/__MACOSX/set 1.txt");
    cr_expect_str_eq(visited(in_folder(".cache/__MACOSX/set")), "1.txt ");
    cr_expect_str_eq(visited(in_folder(".cache/._set.tar")), "1.txt ");
}

Test(companions, a_link_to_what_contains_it_is_not_followed, .init = make_folder,
     .fini = remove_folder)
{
    in_shell("mkdir -p set/cat other && touch set/cat/1.txt other/2.txt && ln -s .. set/cat/up &&"
             " ln -s . set/cat/here && ln -s ../other set/dog && ln -s nowhere set/none");
    cr_expect_str_eq(visited(in_folder("set")), "cat/1.txt dog/2.txt ");
}
