/* imdb_commands.h - the subcommands of imdb; argv holds their flags. They return the exit status. */
#ifndef IMDB_COMMANDS_H
#define IMDB_COMMANDS_H

int imdb_pretrain_main(int argc, char **argv);
int imdb_convert_main(int argc, char **argv);
int imdb_train_main(int argc, char **argv);
int imdb_eval_main(int argc, char **argv);
int imdb_predict_main(int argc, char **argv);

#endif
