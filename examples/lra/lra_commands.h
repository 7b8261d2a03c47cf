/* lra_commands.h - the subcommands of lra; argv holds their flags. They return the exit status. */
#ifndef LRA_COMMANDS_H
#define LRA_COMMANDS_H

int lra_train_main(int argc, char **argv);
int lra_eval_main(int argc, char **argv);
int lra_perturb_main(int argc, char **argv);
int lra_table_main(int argc, char **argv);
int lra_scale_main(int argc, char **argv);

#endif
