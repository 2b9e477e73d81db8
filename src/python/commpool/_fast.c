// What programs call often, in C over the C ABI: a scope's begin and end, and record_stream. Python's limited API
// of 3.9: one binary for every CPython since. The package does the same by ctypes where this module is not there. Other
// parts of the binary: what CuPy calls (_cupy.c), and what an allocation that runs out calls (_holder.cc).
//
// It is linked with libcommpool.so.0, which `_library` has loaded by the time: the names are of that one.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>
#include <pthread.h>
#include <stdint.h>
#include <structmember.h>

#include "commpool/commpool.h"

// ---- Python's objects ---------------------------------------------------------------------------------------------

static int ReadAddress(PyObject* number, uint64_t* address) {
  *address = PyLong_AsUnsignedLongLong(number);
  return *address == UINT64_MAX && PyErr_Occurred() != NULL ? -1 : 0;
}

// ---- Scope ----------------------------------------------------------------------------------------------------------

// The functions that begin and end scopes: the library's, or those of a framework's router.
typedef struct {
  commpool_status (*begin)(commpool_pool pool, const commpool_scope_options* options, commpool_scope* scope);
  commpool_status (*end)(commpool_scope scope);
} Way;

static const Way library_way = {commpool_scope_begin, commpool_scope_end};
static Way router_way = {NULL, NULL};  // without a router it begins nothing
static PyObject* routed_type = NULL;   // its subtypes use the router

typedef struct Scope {
  PyObject_HEAD PyObject* pool;
  PyObject* options;  // the bytes of a commpool_scope_options, or null: this thread
  PyObject* instead;  // another open scope that does the work, or null
  const Way* way;
  const commpool_scope_options* c_options;  // in `options`
  commpool_pool handle;
  commpool_scope scope;  // 0: not open
  const void* task;      // the task that entered it
  pthread_t thread;      // that entered it
  struct Scope* before;  // entered before it, by any thread, and open
} Scope;

static Scope* entered = NULL;  // the open scopes of all threads, the newest first; Python's lock guards them

// A scope may be left in any order, and by another thread.
static void Forget(const Scope* self) {
  for (Scope** place = &entered; *place != NULL; place = &(*place)->before) {
    if (*place != self) continue;
    *place = self->before;
    return;
  }
}

// These belong to asyncio, once the program has imported it.
static PyObject *running_loop = NULL, *current_task = NULL;

static int KnowAsyncio(void) {
  static PyObject* name = NULL;
  if (name == NULL) name = PyUnicode_InternFromString("asyncio");
  PyObject* asyncio = name == NULL ? NULL : PyDict_GetItemWithError(PyImport_GetModuleDict(), name);
  if (asyncio == NULL) return 0;
  if (current_task == NULL) current_task = PyObject_GetAttrString(asyncio, "current_task");
  if (current_task != NULL) running_loop = PyObject_GetAttrString(asyncio, "_get_running_loop");
  return running_loop != NULL;
}

// The asyncio task that runs on this thread, by its address; NULL for none. A task keeps its scopes.
static const void* RunningTask(void) {
  const void* address = NULL;
  PyObject* loop = running_loop != NULL || KnowAsyncio() ? PyObject_CallObject(running_loop, NULL) : NULL;
  if (loop != NULL && loop != Py_None) {
    PyObject* task = PyObject_CallFunctionObjArgs(current_task, loop, NULL);
    address = task == Py_None ? NULL : task;
    Py_XDECREF(task);
  }
  Py_XDECREF(loop);
  if (address == NULL) PyErr_Clear();  // for example while asyncio is being imported
  return address;
}

// `_configure` of the type checks the words, and returns the ctypes options for them.
static int SetOptions(Scope* self, PyObject* arguments, PyObject* words) {
  PyObject* configure = PyObject_GetAttrString((PyObject*)self, "_configure");
  PyObject* options = configure == NULL ? NULL : PyObject_Call(configure, arguments, words);
  Py_XDECREF(configure);
  Py_XDECREF(self->options);  // of an earlier call that then failed
  self->options = options == NULL ? NULL : PyBytes_FromObject(options);
  Py_XDECREF(options);
  if (self->options == NULL) return -1;
  self->c_options = (const commpool_scope_options*)(const void*)PyBytes_AsString(self->options);
  return 0;
}

static int ScopeInit(PyObject* object, PyObject* arguments, PyObject* words) {
  Scope* self = (Scope*)object;
  const Py_ssize_t places = PyTuple_Size(arguments), named = words == NULL ? 0 : PyDict_Size(words);
  PyObject* pool = places != 0 || named == 0 ? PyTuple_GetItem(arguments, 0) : PyDict_GetItemString(words, "pool");
  if (self->pool != NULL || pool == NULL) {
    PyErr_SetString(PyExc_TypeError, "use_pool(pool, *, device, stream, sizes, exhaustion, filter)");
    return -1;
  }
  PyObject* handle = PyObject_GetAttrString(pool, "handle");
  const int known = handle != NULL && ReadAddress(handle, &self->handle) == 0;
  Py_XDECREF(handle);
  if (!known) PyErr_Clear();  // `_configure` refuses an object that is not a pool
  const int plain = known && places + named == 1;
  if (!plain && SetOptions(self, arguments, words) != 0) return -1;
  self->way = PyType_IsSubtype(Py_TYPE(object), (PyTypeObject*)routed_type) ? &router_way : &library_way;
  Py_INCREF(pool);
  self->pool = pool;
  return 0;
}

static PyObject* ScopeEnter(PyObject* object, PyObject* ignored) {
  (void)ignored;
  Scope* self = (Scope*)object;
  if (self->pool == NULL || self->scope != 0 || self->instead != NULL) {
    return PyObject_CallMethod(object, "_refuse", NULL);
  }
  const commpool_status status =
      self->way->begin == NULL ? COMMPOOL_NOT_CAUGHT : self->way->begin(self->handle, self->c_options, &self->scope);
  if (status != COMMPOOL_OK) {
    self->instead = PyObject_CallMethod(object, "_otherwise", "i", (int)status);
    if (self->instead == NULL) return NULL;
  }
  self->task = RunningTask();
  if (self->instead == NULL) {  // the other one is known itself
    self->thread = pthread_self();
    self->before = entered;
    entered = self;
  }
  Py_INCREF(self->pool);
  return self->pool;
}

static PyObject* ExitInstead(Scope* self, PyObject* arguments) {
  PyObject* instead = self->instead;
  self->instead = NULL;
  PyObject* method = PyObject_GetAttrString(instead, "__exit__");
  PyObject* result = method == NULL ? NULL : PyObject_Call(method, arguments, NULL);
  Py_XDECREF(method);
  Py_DECREF(instead);
  return result;
}

static PyObject* ScopeExit(PyObject* object, PyObject* arguments) {
  Scope* self = (Scope*)object;
  if (self->instead != NULL) return ExitInstead(self, arguments);
  const commpool_status status = self->way->end(self->scope);
  Forget(self);
  self->scope = 0;  // it has ended, whether the call failed or not
  if (status != COMMPOOL_OK) return PyObject_CallMethod(object, "_refuse_end", "i", (int)status);
  if (self->task != NULL && RunningTask() != self->task) return PyObject_CallMethod(object, "_refuse_task", NULL);
  Py_RETURN_NONE;
}

static PyObject* ScopeAgain(PyObject* object, PyObject* ignored) {
  (void)ignored;
  const Scope* self = (const Scope*)object;
  Scope* other = (Scope*)PyType_GenericAlloc(Py_TYPE(object), 0);
  if (other == NULL) return NULL;
  Py_XINCREF(self->pool);
  Py_XINCREF(self->options);
  other->pool = self->pool;
  other->options = self->options;
  other->way = self->way;
  other->c_options = self->c_options;
  other->handle = self->handle;
  return (PyObject*)other;
}

static void ScopeDeallocate(PyObject* object) {
  Scope* self = (Scope*)object;
  if (self->scope != 0) {
    self->way->end(self->scope);
    Forget(self);
  }
  Py_XDECREF(self->pool);
  Py_XDECREF(self->options);
  Py_XDECREF(self->instead);
  PyTypeObject* type = Py_TYPE(object);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(object);
  Py_DECREF(type);
}

static PyMemberDef scope_members[] = {
    {"pool", T_OBJECT, offsetof(Scope, pool), READONLY, "Where allocations go."},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef scope_methods[] = {
    {"__enter__", ScopeEnter, METH_NOARGS, "Begins the scope; returns its pool."},
    {"__exit__", ScopeExit, METH_VARARGS, "Ends the scope."},
    {"again", ScopeAgain, METH_NOARGS, "Another scope with the same pool and options."},
    {NULL, NULL, 0, NULL},
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

static PyType_Slot routed_slots[] = {{Py_tp_doc, "The same by a router: of commpool.torch.use_pool."}, {0, NULL}};

#define COMMPOOL_SCOPE_SPEC(type_name, type_slots)                         \
  {                                                                        \
    .name = "commpool._fast." type_name, .basicsize = sizeof(Scope),       \
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, .slots = type_slots \
  }
static PyType_Spec scope_spec = COMMPOOL_SCOPE_SPEC("Scope", scope_slots);
static PyType_Spec routed_spec = COMMPOOL_SCOPE_SPEC("RoutedScope", routed_slots);

static PyObject* CurrentPool(PyObject* module, PyObject* ignored) {
  (void)module;
  (void)ignored;
  const Scope* scope = entered;
  while (scope != NULL && !pthread_equal(scope->thread, pthread_self())) scope = scope->before;
  PyObject* pool = scope == NULL ? Py_None : scope->pool;
  Py_INCREF(pool);
  return pool;
}

// ---- The module -----------------------------------------------------------------------------------------------------

static int ReadExactly(PyObject* number, uint64_t* address) {
  return PyLong_CheckExact(number) ? ReadAddress(number, address) : -1;
}

// Takes addresses as integers. The package's own record_stream takes keywords and other objects, and raises failures.
static PyObject* RecordStream(PyObject* module, PyObject* arguments, PyObject* words) {
  (void)module;
  uint64_t address = 0, handle = 0;
  if (words == NULL && PyTuple_Size(arguments) == 2 && ReadExactly(PyTuple_GetItem(arguments, 0), &address) == 0 &&
      ReadExactly(PyTuple_GetItem(arguments, 1), &handle) == 0 &&
      commpool_record_stream((void*)(uintptr_t)address, (struct CUstream_st*)(uintptr_t)handle) == COMMPOOL_OK) {
    Py_RETURN_NONE;
  }
  PyErr_Clear();
  PyObject* blocks = PyImport_ImportModule("commpool.blocks");
  PyObject* record = blocks == NULL ? NULL : PyObject_GetAttrString(blocks, "record_stream");
  PyObject* none = record == NULL ? NULL : PyObject_Call(record, arguments, words);
  Py_XDECREF(record);
  Py_XDECREF(blocks);
  return none;
}

static PyObject* RouteBy(PyObject* module, PyObject* arguments) {
  (void)module;
  unsigned long long begin = 0, end = 0;
  if (!PyArg_ParseTuple(arguments, "KK:route_by", &begin, &end)) return NULL;
  router_way.begin =
      (commpool_status(*)(commpool_pool, const commpool_scope_options*, commpool_scope*))(uintptr_t)begin;
  router_way.end = (commpool_status(*)(commpool_scope))(uintptr_t)end;
  Py_RETURN_NONE;
}

static PyObject* Address(PyObject* module, PyObject* ignored) {
  (void)module;
  (void)ignored;
  return PyLong_FromVoidPtr((void*)(uintptr_t)&commpool_scope_begin);
}

// _cupy.c
__attribute__((visibility("hidden"))) PyObject* CupySource(PyObject* module, PyObject* arguments);
__attribute__((visibility("hidden"))) PyObject* CupyAllocator(PyObject* module, PyObject* arguments);

static PyMethodDef module_methods[] = {
    {"record_stream", (PyCFunction)(void (*)(void))RecordStream, METH_VARARGS | METH_KEYWORDS,
     "record_stream(pointer, stream)\n--\n\nNotes that a stream uses a block, too: after submitting that work, before "
     "the free.\n\nRaises:\n  NotFound: the pointer is in no live block."},
    {"route_by", RouteBy, METH_VARARGS, "Where a router's functions are, which begin and end a RoutedScope."},
    {"cupy_source", CupySource, METH_VARARGS, "(parameter, allocate, free, owner) of a CFunctionAllocator."},
    {"cupy_allocator", CupyAllocator, METH_VARARGS, "A CFunctionAllocator's malloc whose failures raise."},
    {"current_pool", CurrentPool, METH_NOARGS, "Of the scope that this thread entered last; None without one."},
    {"address", Address, METH_NOARGS, "Of commpool_scope_begin: which library this module calls."},
    {NULL, NULL, 0, NULL},
};

static int AddType(PyObject* module, const char* name, PyObject* type) {
  if (type == NULL) return -1;
  Py_INCREF(type);
  return PyModule_AddObject(module, name, type);
}

static int Execute(PyObject* module) {
  PyObject* scope_type = PyType_FromSpec(&scope_spec);
  if (AddType(module, "Scope", scope_type) != 0) return -1;
  PyObject* const bases = PyTuple_Pack(1, scope_type);  // a tuple: CPython 3.9 takes no type
  if (bases == NULL) return -1;
  routed_type = PyType_FromSpecWithBases(&routed_spec, bases);
  Py_DECREF(bases);
  return AddType(module, "RoutedScope", routed_type);
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
