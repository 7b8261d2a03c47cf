/* image_commands.h - the subcommands of imagenet. argv holds their flags; they return the exit
 * status. */
#ifndef IMAGE_COMMANDS_H
#define IMAGE_COMMANDS_H

int image_train_main(int argc, char **argv);
int image_eval_main(int argc, char **argv);
int predict_main(int argc, char **argv);
int throughput_main(int argc, char **argv);
int robust_main(int argc, char **argv);
int image_table_main(int argc, char **argv);
int analyze_main(int argc, char **argv);
int image_scale_main(int argc, char **argv);

#endif
