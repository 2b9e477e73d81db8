// The router's C surface, for ctypes. A function returns 0 for success. Another number is a failure, and
// commpool_torch_last_error() has the reason.
#pragma once

#include <stdint.h>

#include "commpool/commpool.h"

extern "C" {

// Returns the version of the PyTorch that may load it, such as "2.11".
COMMPOOL_API const char* commpool_torch_built_for();
COMMPOOL_API const char* commpool_torch_last_error();

// Puts the router in front of PyTorch's allocator. `libcommpool` is the file of the library to use. A second call is
// allowed.
COMMPOOL_API int commpool_torch_install(const char* libcommpool);
// Removes the router. Returns 1 if blocks or MemPools of ours are alive: then it stays, forwards, and routes nothing.
COMMPOOL_API int commpool_torch_uninstall();
COMMPOOL_API int commpool_torch_installed();

// Returns 1 if PyTorch recorded history before the router came. The router does not know the settings then, so our
// pools have no history.
COMMPOOL_API int commpool_torch_misses_history();
// While it is 1, this thread's request to PyTorch to record history is only for our pools, and the call fails after
// that.
COMMPOOL_API void commpool_torch_record_ours_only(int ours_only);

// Counts the pool in PyTorch's statistics and snapshots of the device. `symmetric`: all ranks trim it, or nobody does.
COMMPOOL_API int commpool_torch_know_pool(commpool_pool pool, int device, int symmetric);
// Call it when pools have woken: it grants them to the peers that PyTorch got meanwhile. A second install does the
// same.
COMMPOOL_API int commpool_torch_grant_again(void);
// From now on a scope over the pool catches pinned tensors, of all threads, and no tensor of a device. Puts an
// allocator in front of PyTorch's pinned one, which stays; fails where this PyTorch does not let it.
COMMPOOL_API int commpool_torch_know_pinned(commpool_pool pool);
// torch.cuda.empty_cache leaves the pool at least this many bytes.
COMMPOOL_API int commpool_torch_keep(commpool_pool pool, uint64_t bytes);
// Makes the pool serve the device outside of all scopes; 0: PyTorch's own allocator does.
COMMPOOL_API int commpool_torch_set_default(int device, commpool_pool pool);
// The next torch.cuda.MemPool that this thread makes is this pool; 0 takes that back.
COMMPOOL_API void commpool_torch_bind_next(commpool_pool pool);

// Calls a function for each allocation that the router asks of a pool. Another function writes what Python knows about
// a failure's sentence (where the call was made, or what a user's function raised), as a text of at most `bytes` with
// its end, or nothing. Both may take Python's lock. Null: nobody watches.
typedef void (*commpool_torch_on_call)(commpool_pool pool, uint64_t bytes);
typedef void (*commpool_torch_explain)(commpool_pool pool, const char* sentence, char* text, uint64_t bytes);
COMMPOOL_API void commpool_torch_watch_calls(commpool_torch_on_call on_call, commpool_torch_explain explain);

// Like commpool_scope_begin and commpool_scope_end; commpool_last_error has their failures too. But a backward() that
// the program calls in a thread's scope follows the scope, and after the last outer scope a failed request goes to
// PyTorch. NOT_CAUGHT: the router routes nothing, or does not know the pool; make the pool known and begin again.
// FAILED_PRECONDITION: the scope ends on another thread than it began on. INVALID_ARGUMENT: it ends before a scope that
// began after it. In both cases it has ended.
COMMPOOL_API commpool_status commpool_torch_scope_begin(commpool_pool pool, const commpool_scope_options* options,
                                                        commpool_scope* scope);
COMMPOOL_API commpool_status commpool_torch_scope_end(commpool_scope scope);

// Sets the Python class that failures of a kind (a commpool_status) raise; the class must live for ever. Without one
// they raise a RuntimeError. Out of memory raises PyTorch's own error.
COMMPOOL_API void commpool_torch_raise_as(int status, void* python_class);

// Returns the pool of the innermost scope that this thread sees and that catches the request; 0: none, or a scope that
// the library knows too.
COMMPOOL_API commpool_pool commpool_torch_caught_by(int device, uint64_t bytes, CUstream_st* stream);
}
