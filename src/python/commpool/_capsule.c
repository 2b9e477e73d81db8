// What Python's capsules own goes back by these functions, without a line of Python's before: Ctrl-C may interrupt one
// before its first step, and none may run while an exception is on its way. Python finds them by ctypes.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>
#include <stdint.h>

#define COMMPOOL_FOR_PYTHON __attribute__((visibility("default")))

// ---- Blocks ---------------------------------------------------------------------------------------------------------

// Frees the block of a capsule whose context is the function that does it. Null: it was freed, or is another's now.
COMMPOOL_FOR_PYTHON int commpool_block_free(PyObject* capsule) {
  int (*const release)(void*) = (int (*)(void*))(uintptr_t)PyCapsule_GetContext(capsule);
  if (release == NULL) return 0;
  PyCapsule_SetContext(capsule, NULL);
  void* block = PyCapsule_GetPointer(capsule, NULL);
  PyThreadState* state = PyEval_SaveThread();  // it may wait for a thread that runs a function of Python's
  const int status = release(block);
  PyEval_RestoreThread(state);
  return status;
}

// The capsule's destructor. A failure has nobody to hear of it: a forked child must not free, for one.
COMMPOOL_FOR_PYTHON void commpool_block_destroy(PyObject* capsule) { (void)commpool_block_free(capsule); }

// ---- DLPack ---------------------------------------------------------------------------------------------------------

// DLManagedTensor and DLManagedTensorVersioned, as _dlpack.py has them. Their context is the function of Python's that
// lets go of what a struct keeps alive.
typedef struct {
  uint64_t tensor[6];
  void (*let_go)(void* managed);
} Managed;
typedef struct {
  uint32_t version[2];
  void (*let_go)(void* managed);
} Versioned;

// A consumer may have refused it with an exception, or drop it while one is on its way. It may not have Python's lock.
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

// The destructor of a capsule. A consumer that took the struct has renamed it.
COMMPOOL_FOR_PYTHON void commpool_dlpack_destroy(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    commpool_dlpack_delete((Managed*)PyCapsule_GetPointer(capsule, "dltensor"));
  } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    commpool_dlpack_delete_versioned((Versioned*)PyCapsule_GetPointer(capsule, "dltensor_versioned"));
  }
}
