/* Recordings: what happens in the pools of this process, written to a file for `commpool report`. A capability beside
 * commpool.h, whose conventions hold. Without a change of the program: COMMPOOL_RECORD=DIRECTORY. */
#ifndef COMMPOOL_RECORD_H_
#define COMMPOOL_RECORD_H_

#include "commpool/commpool.h"

typedef enum commpool_stacks {
  COMMPOOL_STACKS_NONE = 0,
  COMMPOOL_STACKS_PYTHON = 1, /* where the program asked, for each block above 1 MiB: some microseconds a block */
  COMMPOOL_STACKS_NATIVE = 2  /* the same of a program in C or C++: names of functions that its files export */
} commpool_stacks;

typedef struct commpool_record_options {
  size_t struct_bytes;    /* set by commpool_record_options_init */
  const char* directory;  /* made where it is missing; each process gets a file of its own there */
  uint64_t limit_bytes;   /* of that file, at least 1 MiB: then the oldest goes; default 256 MiB */
  commpool_stacks stacks; /* default NONE */
  commpool_pool pool;     /* the one pool to record; default 0: all */
} commpool_record_options;

static inline void commpool_record_options_init(commpool_record_options* options) {
  if (!options) return;
  options->struct_bytes = sizeof(*options);
  options->directory = 0;
  options->limit_bytes = 268435456;
  options->stacks = COMMPOOL_STACKS_NONE;
  options->pool = 0;
}

/* Records from now on, with all that there is now; null writes what is left, and ends it. The file is written every 100
 * ms by a thread of the library, and when the process exits; what was written survives a kill. A full disk loses a part
 * of the recording and never fails a call. FAILED_PRECONDITION where a recording is under way, or, for null, none is;
 * INVALID_ARGUMENT for a path that is no directory, OUT_OF_MEMORY where the disk is full already. */
COMMPOOL_API commpool_status commpool_record(const commpool_record_options* options);

#endif /* COMMPOOL_RECORD_H_ */
