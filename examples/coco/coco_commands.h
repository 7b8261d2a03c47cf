/* coco_commands.h - the subcommands of coco. argv holds their flags; they return the exit
 * status. */
#ifndef COCO_COMMANDS_H
#define COCO_COMMANDS_H

int coco_train_main(int argc, char **argv);
int coco_eval_main(int argc, char **argv);
int coco_predict_main(int argc, char **argv);
int coco_analyze_main(int argc, char **argv);
int coco_plan_main(int argc, char **argv);
int coco_scenes_main(int argc, char **argv);

#endif
