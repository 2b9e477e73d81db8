// What programs call often, in C over the C ABI: a scope's begin and end, and record_stream. Python's limited API
// of 3.9: one binary for every CPython since. The package does the same by ctypes where this module is not there.
//
// It is linked with libcommpool.so.0, which `_library` has loaded by the time: the names are of that one.
#include "src/python/commpool/_fast.h"

#include "commpool/commpool.h"

typedef struct {
  PyObject_HEAD PyObject* pool;
  PyObject* options;                        // a ctypes commpool_scope_options, or null: this thread
  const commpool_scope_options* c_options;  // in `options`
  commpool_pool handle;
  commpool_scope scope;  // 0 where it is not open
} Scope;

// Raises the exception of a status of this thread's last call; always returns null.
static PyObject* Raise(commpool_status status) {
  PyObject* number = PyLong_FromLong((long)status);
  if (number == NULL) return NULL;
  PyObject* none = RaiseBy("commpool._library", "check", number);
  Py_DECREF(number);
  return none;
}

static int ReadAddress(PyObject* number, uint64_t* address) {
  *address = PyLong_AsUnsignedLongLong(number);
  return *address == UINT64_MAX && PyErr_Occurred() != NULL ? -1 : 0;
}

static int ReadAttribute(PyObject* object, const char* name, uint64_t* number) {
  PyObject* attribute = PyObject_GetAttrString(object, name);
  if (attribute == NULL) return -1;
  const int result = ReadAddress(attribute, number);
  Py_DECREF(attribute);
  return result;
}

// ---- Scope ----------------------------------------------------------------------------------------------------------

static int SetOptions(Scope* self, PyObject* arguments, PyObject* words) {
  PyObject* options = CallPackage("commpool.scopes", "configure", arguments, words);
  if (options == NULL) return -1;
  Replace(&self->options, options);
  Py_DECREF(options);
  PyObject* address = CallPackageWith("ctypes", "addressof", options);
  uint64_t number = 0;
  if (address == NULL || ReadAddress(address, &number) != 0) {
    Py_XDECREF(address);
    return -1;
  }
  Py_DECREF(address);
  self->c_options = (const commpool_scope_options*)(uintptr_t)number;
  return 0;
}

static int ScopeInit(PyObject* object, PyObject* arguments, PyObject* words) {
  Scope* self = (Scope*)object;
  if (self->scope != 0 || PyTuple_Size(arguments) != 1) {
    PyErr_SetString(PyExc_TypeError, "use_pool(pool, *, device, stream, sizes, exhaustion, filter)");
    return -1;
  }
  PyObject* pool = PyTuple_GetItem(arguments, 0);
  const int known = ReadAttribute(pool, "handle", &self->handle) == 0;
  if (!known) PyErr_Clear();  // what is no pool is refused there
  const int plain = known && (words == NULL || PyDict_Size(words) == 0);
  if (!plain && SetOptions(self, arguments, words) != 0) return -1;
  Replace(&self->pool, pool);
  return 0;
}

static PyObject* ScopeEnter(PyObject* object, PyObject* ignored) {
  (void)ignored;
  Scope* self = (Scope*)object;
  if (self->pool == NULL || self->scope != 0) return RaiseBy("commpool.scopes", "refuse", object);
  const commpool_status status = commpool_scope_begin(self->handle, self->c_options, &self->scope);
  if (status != COMMPOOL_OK) return Raise(status);
  Py_INCREF(self->pool);
  return self->pool;
}

static PyObject* ScopeExit(PyObject* object, PyObject* ignored) {
  (void)ignored;
  Scope* self = (Scope*)object;
  const commpool_status status = commpool_scope_end(self->scope);
  if (status != COMMPOOL_OK) return Raise(status);
  self->scope = 0;
  Py_RETURN_NONE;
}

static PyObject* ScopeAgain(PyObject* object, PyObject* ignored) {
  (void)ignored;
  const Scope* self = (const Scope*)object;
  Scope* other = (Scope*)PyType_GenericAlloc(Py_TYPE(object), 0);
  if (other == NULL) return NULL;
  Replace(&other->pool, self->pool);
  Replace(&other->options, self->options);
  other->c_options = self->c_options;
  other->handle = self->handle;
  return (PyObject*)other;
}

static void ScopeDeallocate(PyObject* object) {
  Scope* self = (Scope*)object;
  if (self->scope != 0) commpool_scope_end(self->scope);
  Py_XDECREF(self->pool);
  Py_XDECREF(self->options);
  Release(object);
}

static PyMemberDef scope_members[] = {
    {"pool", T_OBJECT, offsetof(Scope, pool), READONLY, "Where allocations go."},
    {NULL, 0, 0, 0, NULL},
};

COMMPOOL_SCOPE_TYPE("Scope", Scope, "A scope: commpool.use_pool adds what needs no speed.");

// ---- The module -----------------------------------------------------------------------------------------------------

// An address as it is, or what a function of commpool.handles makes of an object, which refuses what is none.
static int Convert(const char* function_name, PyObject* value, uint64_t* address) {
  if (PyLong_CheckExact(value)) {
    if (ReadAddress(value, address) == 0) return 0;
    PyErr_Clear();
  }
  PyObject* number = CallPackageWith("commpool.handles", function_name, value);
  if (number == NULL) return -1;
  const int result = ReadAddress(number, address);
  Py_DECREF(number);
  return result;
}

static PyObject* RecordStream(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject *pointer = NULL, *stream = NULL;
  if (!PyArg_ParseTuple(arguments, "OO:record_stream", &pointer, &stream)) return NULL;
  uint64_t address = 0, handle = 0;
  if (Convert("pointer_of", pointer, &address) != 0 || Convert("stream_handle", stream, &handle) != 0) return NULL;
  const commpool_status status =
      commpool_record_stream((void*)(uintptr_t)address, (struct CUstream_st*)(uintptr_t)handle);
  if (status != COMMPOOL_OK) return Raise(status);
  Py_RETURN_NONE;
}

static PyObject* Address(PyObject* module, PyObject* ignored) {
  (void)module;
  (void)ignored;
  return PyLong_FromVoidPtr((void*)(uintptr_t)&commpool_scope_begin);
}

static PyMethodDef module_methods[] = {
    {"record_stream", RecordStream, METH_VARARGS, "Notes that a stream uses a block, too."},
    {"address", Address, METH_NOARGS, "Of commpool_scope_begin: which library this module calls."},
    {NULL, NULL, 0, NULL},
};

static int Execute(PyObject* module) {
  return AddScopeType(module, "Scope", &scope_spec) == 0 ? AddRoutedScope(module) : -1;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, Execute}, {0, NULL}};

static PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_fast",
    .m_doc = "What programs call often, in C.",
    .m_methods = module_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__fast(void) { return PyModuleDef_Init(&module_definition); }
