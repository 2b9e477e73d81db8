// Scopes over the router of commpool.torch, in C: with `with use_pool(pool):` a program enters and leaves one around
// each step. The router's functions come as addresses. `torch._scope.PlainScope` is the same by ctypes.
#include "src/python/commpool/_fast.h"

static const char kPackage[] = "commpool.torch._scope";

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
  if (made == NULL) made = CallPackage(kPackage, "configure", arguments, words);
  if (made == NULL) return -1;
  const int result = Take(self, made);
  Py_DECREF(made);
  return result;
}

static PyObject* ScopeEnter(PyObject* object, PyObject* ignored) {
  (void)ignored;
  Scope* self = (Scope*)object;
  if (self->open || self->pool == NULL) return RaiseBy(kPackage, "refuse_open", object);
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
  if (!self->open) return RaiseBy(kPackage, "refuse_closed", object);
  self->open = 0;
  if (self->delegate != NULL) {
    PyObject* method = PyObject_GetAttrString(self->delegate, "__exit__");
    PyObject* result = method == NULL ? NULL : PyObject_Call(method, arguments, NULL);
    Py_XDECREF(method);
    return result;
  }
  void* scope = self->scope;
  self->scope = NULL;
  if (self->c_entrance->leave(scope) != 0) return RaiseBy(kPackage, "refuse_thread", object);
  Py_RETURN_NONE;
}

static PyObject* ScopeAgain(PyObject* object, PyObject* ignored) {
  (void)ignored;
  Scope* self = (Scope*)object;
  if (self->delegate != NULL) return CallPackageWith(kPackage, "delegate_again", object);
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
  Release(object);
}

static PyMemberDef scope_members[] = {
    {"pool", T_OBJECT, offsetof(Scope, pool), READONLY, "Where tensors go."},
    {"delegate", T_OBJECT, offsetof(Scope, delegate), READONLY, "What does the work where the router does not."},
    {NULL, 0, 0, 0, NULL},
};

COMMPOOL_SCOPE_TYPE("RoutedScope", Scope, "A scope: commpool.torch.use_pool adds what needs no speed.");

int AddRoutedScope(PyObject* module) { return AddScopeType(module, "RoutedScope", &scope_spec); }
