// Scopes over the router, in C: with `with use_pool(pool):` a program enters and leaves one around each step. Python's
// limited API of 3.9, and no library of ours: the router's functions come as addresses. `_scope.PlainScope` is the same
// by ctypes.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>
#include <stdint.h>
#include <structmember.h>

typedef void* (*Enter)(const void* plan);
typedef int (*Leave)(void* scope);

// What `_scope.Entrance` holds: a plan of the router's with the functions that it is for.
typedef struct {
  Enter enter;
  Leave leave;
  const void* plan;
} Entrance;

typedef struct {
  PyObject_HEAD PyObject* pool;
  PyObject* entrance;  // a ctypes Entrance, or null
  PyObject* delegate;  // another scope that does the work where the router does not; or null
  const Entrance* c_entrance;
  void* scope;  // null where it is not open
  int open;     // also of a delegate
} Scope;

static PyObject* CallPackage(const char* function_name, PyObject* arguments, PyObject* words) {
  PyObject* module = PyImport_ImportModule("commpool.torch._scope");
  if (module == NULL) return NULL;
  PyObject* function = PyObject_GetAttrString(module, function_name);
  Py_DECREF(module);
  if (function == NULL) return NULL;
  PyObject* result = PyObject_Call(function, arguments, words);
  Py_DECREF(function);
  return result;
}

static void Replace(PyObject** place, PyObject* value) {
  PyObject* before = *place;
  Py_XINCREF(value);
  *place = value;
  Py_XDECREF(before);
}

// Takes over what `_scope.configure` made of the arguments: (pool, entrance or None, its address, delegate or None).
static int Take(Scope* self, PyObject* made) {
  PyObject *pool = NULL, *entrance = NULL, *delegate = NULL;
  unsigned long long address = 0;
  if (!PyArg_ParseTuple(made, "OOKO", &pool, &entrance, &address, &delegate)) return -1;
  Replace(&self->pool, pool);
  Replace(&self->entrance, entrance == Py_None ? NULL : entrance);
  Replace(&self->delegate, delegate == Py_None ? NULL : delegate);
  self->c_entrance = (const Entrance*)(uintptr_t)address;
  return 0;
}

// A pool that was entered before knows its entrance: (pool, entrance, address, None).
static PyObject* KnownEntrance(PyObject* arguments, PyObject* words) {
  if (PyTuple_Size(arguments) != 1 || (words != NULL && PyDict_Size(words) != 0)) return NULL;
  PyObject* known = PyObject_GetAttrString(PyTuple_GetItem(arguments, 0), "_entrance");
  if (known == NULL) PyErr_Clear();
  if (known == NULL || PyTuple_Check(known)) return known;
  Py_DECREF(known);
  return NULL;
}

static int ScopeInit(PyObject* object, PyObject* arguments, PyObject* words) {
  Scope* self = (Scope*)object;
  if (self->open) {
    PyErr_SetString(PyExc_RuntimeError, "the scope is open");
    return -1;
  }
  PyObject* made = KnownEntrance(arguments, words);
  if (made == NULL) made = CallPackage("configure", arguments, words);
  if (made == NULL) return -1;
  const int result = Take(self, made);
  Py_DECREF(made);
  return result;
}

// Raises what the package says of this scope; always returns null.
static PyObject* Refuse(const char* function_name, PyObject* object) {
  PyObject* arguments = Py_BuildValue("(O)", object);
  PyObject* none = arguments == NULL ? NULL : CallPackage(function_name, arguments, NULL);
  Py_XDECREF(arguments);
  Py_XDECREF(none);
  return NULL;
}

static PyObject* ScopeEnter(PyObject* object, PyObject* ignored) {
  (void)ignored;
  Scope* self = (Scope*)object;
  if (self->open || self->pool == NULL) return Refuse("refuse_open", object);
  if (self->delegate != NULL) {
    PyObject* entered = PyObject_CallMethod(self->delegate, "__enter__", NULL);
    if (entered == NULL) return NULL;
    Py_DECREF(entered);
  } else {
    self->scope = self->c_entrance->enter(self->c_entrance->plan);
    if (self->scope == NULL) return PyErr_NoMemory();
  }
  self->open = 1;
  Py_INCREF(self->pool);
  return self->pool;
}

static PyObject* ScopeExit(PyObject* object, PyObject* arguments) {
  Scope* self = (Scope*)object;
  if (!self->open) return Refuse("refuse_closed", object);
  self->open = 0;
  if (self->delegate != NULL) {
    PyObject* method = PyObject_GetAttrString(self->delegate, "__exit__");
    PyObject* result = method == NULL ? NULL : PyObject_Call(method, arguments, NULL);
    Py_XDECREF(method);
    return result;
  }
  void* scope = self->scope;
  self->scope = NULL;
  if (self->c_entrance->leave(scope) != 0) return Refuse("refuse_thread", object);
  Py_RETURN_NONE;
}

static PyObject* ScopeAgain(PyObject* object, PyObject* ignored) {
  (void)ignored;
  Scope* self = (Scope*)object;
  if (self->delegate != NULL) {
    PyObject* arguments = Py_BuildValue("(O)", object);
    PyObject* other = arguments == NULL ? NULL : CallPackage("delegate_again", arguments, NULL);
    Py_XDECREF(arguments);
    return other;
  }
  Scope* other = (Scope*)PyType_GenericAlloc(Py_TYPE(object), 0);
  if (other == NULL) return NULL;
  Replace(&other->pool, self->pool);
  Replace(&other->entrance, self->entrance);
  other->c_entrance = self->c_entrance;
  return (PyObject*)other;
}

static void ScopeDeallocate(PyObject* object) {
  Scope* self = (Scope*)object;
  if (self->scope != NULL) self->c_entrance->leave(self->scope);
  Py_XDECREF(self->pool);
  Py_XDECREF(self->entrance);
  Py_XDECREF(self->delegate);
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
    {"pool", T_OBJECT, offsetof(Scope, pool), READONLY, "Where tensors go."},
    {"delegate", T_OBJECT, offsetof(Scope, delegate), READONLY, "What does the work where the router does not."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot scope_slots[] = {
    {Py_tp_doc, "A scope: commpool.torch.use_pool adds what needs no speed."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, ScopeInit},
    {Py_tp_dealloc, ScopeDeallocate},
    {Py_tp_methods, scope_methods},
    {Py_tp_members, scope_members},
    {0, NULL},
};

static PyType_Spec scope_spec = {
    .name = "commpool.torch._fast_scope.Scope",
    .basicsize = sizeof(Scope),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = scope_slots,
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
    .m_name = "_fast_scope",
    .m_doc = "Scopes over the router, in C.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__fast_scope(void) { return PyModuleDef_Init(&module_definition); }
