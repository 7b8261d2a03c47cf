/* gpt_commands.h - the subcommands of gpt. argv holds their flags; they return the exit status. */
#ifndef GPT_COMMANDS_H
#define GPT_COMMANDS_H

int gpt_train_main(int argc, char **argv);
int gpt_eval_main(int argc, char **argv);
int gpt_generate_main(int argc, char **argv);
int gpt_merge_main(int argc, char **argv);

#endif
