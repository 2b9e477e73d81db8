// The router's C surface, for ctypes. A function returns 0, or another number and a sentence in
// commpool_torch_last_error().
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_SURFACE_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_SURFACE_H_

#include <stdint.h>

#include "commpool/commpool.h"

extern "C" {

// "2.11": the PyTorch whose process it may be loaded into.
COMMPOOL_API const char* commpool_torch_built_for();
COMMPOOL_API const char* commpool_torch_last_error();

// Puts the router in front of PyTorch's allocator; `libcommpool` is the file of the library that serves. Idempotent.
COMMPOOL_API int commpool_torch_install(const char* libcommpool);
// Takes it away. 1: blocks or MemPools of ours live, so it stays as a forwarder that routes nothing.
COMMPOOL_API int commpool_torch_uninstall();
COMMPOOL_API int commpool_torch_installed();

// 1: PyTorch recorded history before the router came, and the router does not know how: our pools have none.
COMMPOOL_API int commpool_torch_misses_history();
// While 1, this thread's request to PyTorch to record is for our pools alone, and the call fails after that.
COMMPOOL_API void commpool_torch_record_ours_only(int ours_only);

// The pool counts in PyTorch's statistics and snapshots of the device. `symmetric`: it is trimmed by all ranks or not
// at all.
COMMPOOL_API int commpool_torch_know_pool(commpool_pool pool, int device, int symmetric);
// Pools have woken: grants them now to the peers that PyTorch got meanwhile. A second install does it too.
COMMPOOL_API int commpool_torch_grant_again(void);
// torch.cuda.empty_cache leaves the pool at least so much.
COMMPOOL_API int commpool_torch_keep(commpool_pool pool, uint64_t bytes);
// The pool serves the device outside of all scopes; 0: PyTorch's own allocator does.
COMMPOOL_API int commpool_torch_set_default(int device, commpool_pool pool);
// The next torch.cuda.MemPool that this thread makes is this pool; 0 takes it back.
COMMPOOL_API void commpool_torch_bind_next(commpool_pool pool);

// Told of each allocation that the router asks of a pool; writes what Python knows of a failure's sentence (where the
// call that it names was made, what a user's function raised), as a string of at most `bytes` with its end, or nothing.
// Both may take Python's lock. Null: nobody watches.
typedef void (*commpool_torch_on_call)(commpool_pool pool, uint64_t bytes);
typedef void (*commpool_torch_explain)(commpool_pool pool, const char* sentence, char* text, uint64_t bytes);
COMMPOOL_API void commpool_torch_watch_calls(commpool_torch_on_call on_call, commpool_torch_explain explain);

// As commpool_scope_begin and commpool_scope_end, and commpool_last_error tells of their failures too. But the
// backward() that is called in a thread's scope follows the scope, and at last the scope hands on to PyTorch.
// NOT_CAUGHT where the router routes nothing, or was not told of the pool: tell it, and begin again.
// FAILED_PRECONDITION where a scope ends on another thread than it began on, INVALID_ARGUMENT before one that began
// after it: it has ended all the same.
COMMPOOL_API commpool_status commpool_torch_scope_begin(commpool_pool pool, const commpool_scope_options* options,
                                                        commpool_scope* scope);
COMMPOOL_API commpool_status commpool_torch_scope_end(commpool_scope scope);

// The Python class that failures of a kind (a commpool_status) raise; it lives for ever. Without one they are a
// RuntimeError. Out of memory is PyTorch's own error.
COMMPOOL_API void commpool_torch_raise_as(int status, void* python_class);

// The pool of the innermost scope that this thread sees and that catches the request; 0: none.
COMMPOOL_API commpool_pool commpool_torch_caught_by(int device, uint64_t bytes);
}

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_SURFACE_H_
