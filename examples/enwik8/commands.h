/* commands.h - the subcommands of enwik8; argv holds their flags. They return the exit status. */
#ifndef COMMANDS_H
#define COMMANDS_H

int train_main(int argc, char **argv);
int eval_main(int argc, char **argv);
int generate_main(int argc, char **argv);

#endif
