/* tasks.c - the tasks of Long Range Arena, with their sizes as published. */
#include <string.h>
#include <tapegrad/listops.h>

static const tp_task tasks[] = {
    { "listops", 1, 10, TP_LISTOPS_IDS, 2000, 2048, tp_documents_listops },
    { "text", 1, 2, 257, 4000, 4096, tp_documents_reviews },
    { "retrieval", 2, 2, 257, 4096, 4096, tp_documents_pairs },
    { "image", 1, 10, 257, 1024, 1024, tp_documents_cifar10 },
    { "pathfinder", 1, 2, 257, 1024, 1024, tp_documents_pathfinder },
};
enum { TASKS = sizeof tasks / sizeof tasks[0] };

const tp_task *tp_task_at(int i)
{
    return i >= 0 && i < TASKS ? &tasks[i] : NULL;
}

const tp_task *tp_task_find(const char *name)
{
    if (!name) return NULL;
    for (int i = 0; i < TASKS; i++)
        if (strcmp(tasks[i].name, name) == 0) return &tasks[i];
    return NULL;
}
