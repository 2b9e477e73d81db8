// CuPy's allocator in C: two functions of cupy.cuda.CFunctionAllocator over a pool, without Python. It is a part of the
// module of `_fast.c`. CuPy calls them with the GIL; they release it while they wait for memory.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include "commpool/commpool.h"

// CuPy's C function for the current stream of the calling thread. It is called with the GIL.
typedef intptr_t (*CurrentStream)(void);
static const char stream_signature[] = "intptr_t (void)";

typedef struct {
  commpool_pool pool;  // 0: what the thread's scopes catch, else the default pool
  int device;          // the pool's device
  CurrentStream current_stream;
} Source;

// Why an allocation in the thread's innermost Call() returned null. commpool_last_error has the sentence.
static _Thread_local int last_status = COMMPOOL_OK;

static void* Allocate(void* context, size_t bytes, int device) {
  const Source* source = (const Source*)context;
  if (bytes == 0) return NULL;
  const intptr_t stream = source->current_stream();
  if (PyErr_Occurred() != NULL) return NULL;
  if (source->pool != 0 && device != source->device) {
    last_status = COMMPOOL_INVALID_ARGUMENT;
    return NULL;
  }
  void* pointer = NULL;
  PyThreadState* state = PyEval_SaveThread();
  const commpool_status status =
      source->pool != 0 ? commpool_pool_allocate(source->pool, bytes, (struct CUstream_st*)stream, &pointer)
                        : commpool_allocate(device, bytes, (struct CUstream_st*)stream, &pointer);
  PyEval_RestoreThread(state);
  if (status == COMMPOOL_OK) return pointer;
  last_status = status;
  return NULL;
}

static void Free(void* context, void* pointer, int device) {
  (void)context;
  (void)device;
  PyThreadState* state = PyEval_SaveThread();
  const commpool_status status = commpool_free(pointer);
  PyEval_RestoreThread(state);
  if (status != COMMPOOL_OK) PySys_WriteStderr("commpool: CuPy cannot free %p: %s\n", pointer, commpool_last_error());
}

PyObject* CupySource(PyObject* module, PyObject* arguments) {
  (void)module;
  unsigned long long pool = 0;
  int device = 0;
  PyObject* stream = NULL;
  if (!PyArg_ParseTuple(arguments, "KiO:cupy_source", &pool, &device, &stream)) return NULL;
  // Another signature has another name, so this raises.
  const CurrentStream current_stream = (CurrentStream)PyCapsule_GetPointer(stream, stream_signature);
  if (current_stream == NULL) return NULL;
  const Source source = {pool, device, current_stream};
  PyObject* owner = PyBytes_FromStringAndSize((const char*)&source, sizeof(source));
  if (owner == NULL) return NULL;
  return Py_BuildValue("NNNN", PyLong_FromVoidPtr(PyBytes_AsString(owner)),
                       PyLong_FromVoidPtr((void*)(uintptr_t)&Allocate), PyLong_FromVoidPtr((void*)(uintptr_t)&Free),
                       owner);
}

// CuPy calls this for an array. It calls CuPy's own way to memory, and raises if that found none, because CuPy would
// take null for memory. `self` is (CFunctionAllocator.malloc, a function that raises the error of a status). Python may
// collect garbage inside, and so call it again.
static PyObject* Call(PyObject* self, PyObject* bytes) {
  const int outer = last_status;
  last_status = COMMPOOL_OK;
  PyObject* memory = PyObject_CallFunctionObjArgs(PyTuple_GetItem(self, 0), bytes, NULL);
  const int status = last_status;
  last_status = outer;
  if (memory == NULL || (status == COMMPOOL_OK && PyErr_Occurred() == NULL)) return memory;
  Py_DECREF(memory);
  if (PyErr_Occurred() != NULL) return NULL;
  PyObject* number = PyLong_FromLong(status);
  if (number == NULL) return NULL;
  PyObject* none = PyObject_CallFunctionObjArgs(PyTuple_GetItem(self, 1), number, NULL);
  Py_DECREF(number);
  return none;
}

static PyMethodDef call_definition = {"malloc", Call, METH_O, "Memory of a commpool pool for so many bytes."};

PyObject* CupyAllocator(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject *malloc_method = NULL, *fail = NULL;
  if (!PyArg_ParseTuple(arguments, "OO:cupy_allocator", &malloc_method, &fail)) return NULL;
  return PyCFunction_New(&call_definition, arguments);
}
