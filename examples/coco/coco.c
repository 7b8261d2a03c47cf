/* coco.c - the subcommands of coco, which trains object detectors and evaluates and draws their
 * detections. */
#include <tapegrad/options.h>

#include "coco_commands.h"

static const tp_subcommand commands[] = {
    { "train", "trains a detector, or resumes training", coco_train_main },
    { "eval", "measures average precision on held-out images, or of a file of results",
      coco_eval_main },
    { "predict", "finds objects in images, and draws them", coco_predict_main },
    { "analyze", "draws precision-recall curves, kinds of errors, matched anchors",
      coco_analyze_main },
    { "plan", "lists parameters, multiply-adds and memory of detectors", coco_plan_main },
    { "scenes", "writes drawn scenes as files in COCO's layout", coco_scenes_main },
    { 0 },
};

int main(int argc, char **argv)
{
    return tp_subcommands_main("coco", "object detection: RetinaNet and Mask R-CNN", commands, argc,
                               argv);
}
