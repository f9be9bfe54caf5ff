/* verbs.h: verbs of the command line that stand outside main.c. argv[0] is the verb; an exit code comes back. */
#ifndef VERBS_H
#define VERBS_H

int verb_new(int argc, char **argv);
int verb_why(int argc, char **argv);
int verb_doctor(int argc, char **argv);

#endif
