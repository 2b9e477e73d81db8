// These functions free what Python's capsules own, and run no line of Python before that: Ctrl-C may interrupt a Python
// function before its first step, and none may run while an exception is being raised. Python finds them by ctypes.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>
#include <stdint.h>

#define COMMPOOL_FOR_PYTHON __attribute__((visibility("default")))

// ---- Blocks ---------------------------------------------------------------------------------------------------------

// Frees the block of a capsule. The capsule's context is the function that frees. Null: the block is freed already, or
// has another owner now.
COMMPOOL_FOR_PYTHON int commpool_block_free(PyObject* capsule) {
  int (*const release)(void*) = (int (*)(void*))(uintptr_t)PyCapsule_GetContext(capsule);
  if (release == NULL) return 0;
  PyCapsule_SetContext(capsule, NULL);
  void* block = PyCapsule_GetPointer(capsule, NULL);
  PyThreadState* state = PyEval_SaveThread();  // it may wait for a thread that runs a Python function
  const int status = release(block);
  PyEval_RestoreThread(state);
  return status;
}

// The capsule's destructor. Nobody can hear of a failure, for example that a forked child must not free.
COMMPOOL_FOR_PYTHON void commpool_block_destroy(PyObject* capsule) { (void)commpool_block_free(capsule); }

// Returns what a call of the library allocates, as a capsule that `release` frees. Ctrl-C comes before the call, or
// after the capsule exists. Returns None if the call fails; `status` says why. It passes `pool` or `device`, depending
// on `of_pool`.
typedef int (*OfPool)(uint64_t pool, uint64_t bytes, void* stream, void** block);
typedef int (*OfDevice)(int device, uint64_t bytes, void* stream, void** block);

COMMPOOL_FOR_PYTHON PyObject* commpool_block_allocate(void* call, int of_pool, int64_t asked, uint64_t bytes,
                                                      void* stream, int (*release)(void*), int* status) {
  void* block = NULL;
  PyThreadState* state = PyEval_SaveThread();
  *status = of_pool ? ((OfPool)(uintptr_t)call)((uint64_t)asked, bytes, stream, &block)
                    : ((OfDevice)(uintptr_t)call)((int)asked, bytes, stream, &block);
  PyEval_RestoreThread(state);
  if (*status != 0) Py_RETURN_NONE;
  PyObject* capsule = PyCapsule_New(block, NULL, commpool_block_destroy);
  if (capsule == NULL) {
    release(block);
    return NULL;
  }
  PyCapsule_SetContext(capsule, (void*)(uintptr_t)release);
  return capsule;
}

// ---- DLPack ---------------------------------------------------------------------------------------------------------

// DLManagedTensor and DLManagedTensorVersioned, as in _dlpack.py. Their context is the Python function that lets go of
// what a struct keeps alive.
typedef struct {
  uint64_t tensor[6];
  void (*let_go)(void* managed);
} Managed;
typedef struct {
  uint32_t version[2];
  void (*let_go)(void* managed);
} Versioned;

// A consumer may have refused it with an exception, or may drop it during one. It may not hold Python's lock.
static void LetGo(void (*let_go)(void*), void* managed) {
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject *type = NULL, *value = NULL, *traceback = NULL;
  PyErr_Fetch(&type, &value, &traceback);
  let_go(managed);
  PyErr_Restore(type, value, traceback);
  PyGILState_Release(state);
}

COMMPOOL_FOR_PYTHON void commpool_dlpack_delete(Managed* managed) { LetGo(managed->let_go, managed); }
COMMPOOL_FOR_PYTHON void commpool_dlpack_delete_versioned(Versioned* managed) { LetGo(managed->let_go, managed); }

// The destructor of a capsule. If a consumer took the struct, it has renamed the capsule.
COMMPOOL_FOR_PYTHON void commpool_dlpack_destroy(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    commpool_dlpack_delete((Managed*)PyCapsule_GetPointer(capsule, "dltensor"));
  } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    commpool_dlpack_delete_versioned((Versioned*)PyCapsule_GetPointer(capsule, "dltensor_versioned"));
  }
}
