// What programs call often, in C over the C ABI: a scope's begin and end, and record_stream. Python's limited API
// of 3.9: one binary for every CPython since. The package does the same by ctypes where this module is not there.
//
// It is linked with libcommpool.so.0, which `_library` has loaded by the time: the names are of that one.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>
#include <structmember.h>

#include "commpool/commpool.h"

typedef struct {
  PyObject_HEAD PyObject* pool;
  PyObject* options;                        // a ctypes commpool_scope_options, or null: this thread
  const commpool_scope_options* c_options;  // in `options`
  commpool_pool handle;
  commpool_scope scope;  // 0 where it is not open
} Scope;

// What one of the package's functions returns; null with an exception set.
static PyObject* CallPackage(const char* module_name, const char* function_name, PyObject* arguments, PyObject* words) {
  PyObject* module = PyImport_ImportModule(module_name);
  if (module == NULL) return NULL;
  PyObject* function = PyObject_GetAttrString(module, function_name);
  Py_DECREF(module);
  if (function == NULL) return NULL;
  PyObject* result = PyObject_Call(function, arguments, words);
  Py_DECREF(function);
  return result;
}

// Raises the exception of a status of this thread's last call; always returns null.
static PyObject* Raise(commpool_status status) {
  PyObject* arguments = Py_BuildValue("(i)", (int)status);
  if (arguments == NULL) return NULL;
  PyObject* none = CallPackage("commpool._library", "check", arguments, NULL);
  Py_DECREF(arguments);
  Py_XDECREF(none);
  return NULL;
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
  PyObject* own = self->options;
  self->options = options;
  Py_XDECREF(own);
  PyObject* address_arguments = Py_BuildValue("(O)", options);
  if (address_arguments == NULL) return -1;
  PyObject* address = CallPackage("ctypes", "addressof", address_arguments, NULL);
  Py_DECREF(address_arguments);
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
  PyObject* own = self->pool;
  Py_INCREF(pool);
  self->pool = pool;
  Py_XDECREF(own);
  return 0;
}

static PyObject* ScopeEnter(PyObject* object, PyObject* ignored) {
  (void)ignored;
  Scope* self = (Scope*)object;
  if (self->pool == NULL || self->scope != 0) {
    PyObject* arguments = Py_BuildValue("(O)", object);
    if (arguments == NULL) return NULL;
    PyObject* none = CallPackage("commpool.scopes", "refuse", arguments, NULL);
    Py_DECREF(arguments);
    Py_XDECREF(none);
    return NULL;
  }
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
  other->pool = self->pool;
  other->options = self->options;
  other->c_options = self->c_options;
  other->handle = self->handle;
  Py_XINCREF(other->pool);
  Py_XINCREF(other->options);
  return (PyObject*)other;
}

static void ScopeDeallocate(PyObject* object) {
  Scope* self = (Scope*)object;
  if (self->scope != 0) commpool_scope_end(self->scope);
  Py_XDECREF(self->pool);
  Py_XDECREF(self->options);
  PyTypeObject* type = Py_TYPE(object);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(object);
  Py_DECREF(type);
}

static PyMethodDef scope_methods[] = {
    {"__enter__", ScopeEnter, METH_NOARGS, "Begins the scope; returns its pool."},
    {"__exit__", ScopeExit, METH_VARARGS, "Ends the scope."},
    {"again", ScopeAgain, METH_NOARGS, "Another scope with the same pool and options."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef scope_members[] = {
    {"pool", T_OBJECT, offsetof(Scope, pool), READONLY, "Where allocations go."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot scope_slots[] = {
    {Py_tp_doc, "A scope: commpool.use_pool adds what needs no speed."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, ScopeInit},
    {Py_tp_dealloc, ScopeDeallocate},
    {Py_tp_methods, scope_methods},
    {Py_tp_members, scope_members},
    {0, NULL},
};

static PyType_Spec scope_spec = {
    .name = "commpool._fast.Scope",
    .basicsize = sizeof(Scope),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = scope_slots,
};

// ---- The module -----------------------------------------------------------------------------------------------------

// An address as it is, or what a function of commpool.handles makes of an object, which refuses what is none.
static int Convert(const char* function_name, PyObject* value, uint64_t* address) {
  if (PyLong_CheckExact(value)) {
    if (ReadAddress(value, address) == 0) return 0;
    PyErr_Clear();
  }
  PyObject* arguments = Py_BuildValue("(O)", value);
  if (arguments == NULL) return -1;
  PyObject* number = CallPackage("commpool.handles", function_name, arguments, NULL);
  Py_DECREF(arguments);
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
  PyObject* type = PyType_FromSpec(&scope_spec);
  if (type == NULL) return -1;
  if (PyModule_AddObject(module, "Scope", type) == 0) return 0;
  Py_DECREF(type);
  return -1;
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
