// What the parts of the module in C share: calls into the package, objects in fields, a scope's way into a type.
#ifndef COMMPOOL_SRC_PYTHON_COMMPOOL__FAST_H_
#define COMMPOOL_SRC_PYTHON_COMMPOOL__FAST_H_

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>
#include <stdint.h>
#include <structmember.h>

// What one of the package's functions returns; null with an exception set.
static inline PyObject* CallPackage(const char* module_name, const char* function_name, PyObject* arguments,
                                    PyObject* words) {
  PyObject* module = PyImport_ImportModule(module_name);
  if (module == NULL) return NULL;
  PyObject* function = PyObject_GetAttrString(module, function_name);
  Py_DECREF(module);
  if (function == NULL) return NULL;
  PyObject* result = PyObject_Call(function, arguments, words);
  Py_DECREF(function);
  return result;
}

// The same with one argument.
static inline PyObject* CallPackageWith(const char* module_name, const char* function_name, PyObject* argument) {
  PyObject* arguments = Py_BuildValue("(O)", argument);
  if (arguments == NULL) return NULL;
  PyObject* result = CallPackage(module_name, function_name, arguments, NULL);
  Py_DECREF(arguments);
  return result;
}

// Calls a function that raises; always returns null.
static inline PyObject* RaiseBy(const char* module_name, const char* function_name, PyObject* argument) {
  Py_XDECREF(CallPackageWith(module_name, function_name, argument));
  return NULL;
}

static inline void Replace(PyObject** place, PyObject* value) {
  PyObject* before = *place;
  Py_XINCREF(value);
  *place = value;
  Py_XDECREF(before);
}

// Ends an object whose fields have been given up.
static inline void Release(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(object);
  Py_DECREF(type);
}

static inline int AddScopeType(PyObject* module, const char* name, PyType_Spec* spec) {
  PyObject* type = PyType_FromSpec(spec);
  if (type == NULL) return -1;
  if (PyModule_AddObject(module, name, type) == 0) return 0;
  Py_DECREF(type);
  return -1;
}

// The slots of a scope's type, whose functions have these names in their file.
#define COMMPOOL_SCOPE_TYPE(type_name, c_type, documentation)                              \
  static PyMethodDef scope_methods[] = {                                                   \
      {"__enter__", ScopeEnter, METH_NOARGS, "Begins the scope; returns its pool."},       \
      {"__exit__", ScopeExit, METH_VARARGS, "Ends the scope."},                            \
      {"again", ScopeAgain, METH_NOARGS, "Another scope with the same pool and options."}, \
      {NULL, NULL, 0, NULL},                                                               \
  };                                                                                       \
  static PyType_Slot scope_slots[] = {                                                     \
      {Py_tp_doc, documentation},                                                          \
      {Py_tp_new, PyType_GenericNew},                                                      \
      {Py_tp_init, ScopeInit},                                                             \
      {Py_tp_dealloc, ScopeDeallocate},                                                    \
      {Py_tp_methods, scope_methods},                                                      \
      {Py_tp_members, scope_members},                                                      \
      {0, NULL},                                                                           \
  };                                                                                       \
  static PyType_Spec scope_spec = {                                                        \
      .name = "commpool._fast." type_name,                                                 \
      .basicsize = sizeof(c_type),                                                         \
      .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,                                   \
      .slots = scope_slots,                                                                \
  }

// _fast_routed.c: the scope over the router of commpool.torch.
__attribute__((visibility("hidden"))) int AddRoutedScope(PyObject* module);

#endif  // COMMPOOL_SRC_PYTHON_COMMPOOL__FAST_H_
