// A memory holder whose functions are Python's, for threads that must not wait for Python. An allocation that runs out
// of memory posts a request and waits a bounded time; a thread of Python's takes it, and does the work.
//
// An allocating thread may hold what Python needs: the GIL, or the lock of the library that is asked. So the request is
// withdrawn where it is not taken in time, and left alone where it is not done in time. Python's limited API of 3.9.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

typedef enum { IDLE, POSTED, TAKEN, BEGUN, DONE } Stage;

typedef struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  Stage stage;
  int wanted;   // whether somebody still waits for what is TAKEN or BEGUN
  int closed;   // the Python thread ends
  int release;  // what is asked: 1 to give back, 0 to say what it holds
  int device;
  uint64_t bytes;     // asked for
  uint64_t answer;    // of what is DONE
  uint64_t skipped;   // requests that were not begun in time
  uint64_t overtime;  // that were begun and not done in time
  uint64_t begin_ms;
  uint64_t done_ms;
} Desk;
static const char desk_name[] = "commpool._holder.desk";

static struct timespec After(uint64_t milliseconds) {
  struct timespec moment;
  clock_gettime(CLOCK_MONOTONIC, &moment);
  moment.tv_sec += (time_t)(milliseconds / 1000);
  moment.tv_nsec += (long)(milliseconds % 1000) * 1000000;
  if (moment.tv_nsec >= 1000000000) {
    moment.tv_sec += 1;
    moment.tv_nsec -= 1000000000;
  }
  return moment;
}

// Waits until the desk has come to `stage`; 0 where that took too long. REQUIRES: the mutex.
static int Await(Desk* desk, Stage stage, uint64_t milliseconds) {
  const struct timespec deadline = After(milliseconds);
  while (desk->stage < stage) {
    if (pthread_cond_timedwait(&desk->changed, &desk->mutex, &deadline) != 0) return desk->stage >= stage;
  }
  return 1;
}

// Waits until no other thread's request is under way; 0 where that took too long, or where Python is still at one that
// its thread has given up: that says nothing of when it ends. REQUIRES: the mutex.
static int AwaitTurn(Desk* desk) {
  const struct timespec deadline = After(desk->begin_ms);
  while (desk->stage != IDLE && desk->wanted && !desk->closed) {
    if (pthread_cond_timedwait(&desk->changed, &desk->mutex, &deadline) != 0) break;
  }
  return desk->stage == IDLE && !desk->closed;
}

static void Change(Desk* desk, Stage stage) {
  desk->stage = stage;
  pthread_cond_broadcast(&desk->changed);
}

static void GiveUp(Desk* desk) {
  desk->wanted = 0;
  Change(desk, desk->stage == POSTED ? IDLE : desk->stage);
}

// Once a request is posted. REQUIRES: the mutex. Its place is free again unless Python is still at it.
static uint64_t Answer(Desk* desk) {
  if (!Await(desk, BEGUN, desk->begin_ms)) {
    ++desk->skipped;
    GiveUp(desk);
    return 0;
  }
  if (!Await(desk, DONE, desk->done_ms)) {
    ++desk->overtime;
    GiveUp(desk);
    return 0;
  }
  desk->wanted = 0;
  Change(desk, IDLE);
  return desk->answer;
}

static uint64_t Ask(Desk* desk, int release, int device, uint64_t bytes) {
  uint64_t answer = 0;
  pthread_mutex_lock(&desk->mutex);
  if (!AwaitTurn(desk)) {
    ++desk->skipped;
  } else {
    desk->release = release;
    desk->device = device;
    desk->bytes = bytes;
    desk->wanted = 1;
    Change(desk, POSTED);
    answer = Answer(desk);
  }
  pthread_mutex_unlock(&desk->mutex);
  return answer;
}

static uint64_t CachedBytes(int device, void* context) { return Ask((Desk*)context, 0, device, 0); }
static uint64_t Release(int device, uint64_t bytes, void* context) { return Ask((Desk*)context, 1, device, bytes); }

// ---- What the Python thread calls -----------------------------------------------------------------------------------

static Desk* DeskOf(PyObject* capsule) { return (Desk*)PyCapsule_GetPointer(capsule, desk_name); }

// Never deleted: a thread of the library's may be in it at any time.
static PyObject* MakeDesk(PyObject* module, PyObject* arguments) {
  (void)module;
  unsigned long long begin_ms = 0, done_ms = 0;
  if (!PyArg_ParseTuple(arguments, "KK:desk", &begin_ms, &done_ms)) return NULL;
  Desk* desk = calloc(1, sizeof(Desk));
  if (desk == NULL) return PyErr_NoMemory();
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&desk->mutex, NULL);
  pthread_cond_init(&desk->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  desk->begin_ms = begin_ms;
  desk->done_ms = done_ms;
  return Py_BuildValue("NNNN", PyCapsule_New(desk, desk_name, NULL), PyLong_FromVoidPtr(desk),
                       PyLong_FromVoidPtr((void*)(uintptr_t)&CachedBytes),
                       PyLong_FromVoidPtr((void*)(uintptr_t)&Release));
}

// Waits for a request and takes it: (release, device, bytes); None once the desk is closed.
static PyObject* Take(PyObject* module, PyObject* capsule) {
  (void)module;
  Desk* desk = DeskOf(capsule);
  if (desk == NULL) return NULL;
  int release = 0, device = 0, closed = 0;
  uint64_t bytes = 0;
  PyThreadState* state = PyEval_SaveThread();
  pthread_mutex_lock(&desk->mutex);
  while (!desk->closed && desk->stage != POSTED) pthread_cond_wait(&desk->changed, &desk->mutex);
  closed = desk->closed;
  if (!closed) {
    release = desk->release;
    device = desk->device;
    bytes = desk->bytes;
    Change(desk, TAKEN);
  }
  pthread_mutex_unlock(&desk->mutex);
  PyEval_RestoreThread(state);
  if (closed) Py_RETURN_NONE;
  return Py_BuildValue("iiK", release, device, (unsigned long long)bytes);
}

// Whether the request that was taken is still wanted: now, with the GIL and whatever else it took to come here.
static PyObject* Begin(PyObject* module, PyObject* capsule) {
  (void)module;
  Desk* desk = DeskOf(capsule);
  if (desk == NULL) return NULL;
  pthread_mutex_lock(&desk->mutex);
  const int wanted = desk->wanted;
  Change(desk, wanted ? BEGUN : IDLE);
  pthread_mutex_unlock(&desk->mutex);
  return PyBool_FromLong(wanted);
}

static PyObject* Finish(PyObject* module, PyObject* arguments) {
  (void)module;
  PyObject* capsule = NULL;
  unsigned long long answer = 0;
  if (!PyArg_ParseTuple(arguments, "OK:finish", &capsule, &answer)) return NULL;
  Desk* desk = DeskOf(capsule);
  if (desk == NULL) return NULL;
  pthread_mutex_lock(&desk->mutex);
  desk->answer = answer;
  Change(desk, desk->wanted ? DONE : IDLE);
  pthread_mutex_unlock(&desk->mutex);
  Py_RETURN_NONE;
}

static PyObject* Close(PyObject* module, PyObject* capsule) {
  (void)module;
  Desk* desk = DeskOf(capsule);
  if (desk == NULL) return NULL;
  pthread_mutex_lock(&desk->mutex);
  desk->closed = 1;
  pthread_cond_broadcast(&desk->changed);
  pthread_mutex_unlock(&desk->mutex);
  Py_RETURN_NONE;
}

// (skipped, overtime)
static PyObject* Counts(PyObject* module, PyObject* capsule) {
  (void)module;
  Desk* desk = DeskOf(capsule);
  if (desk == NULL) return NULL;
  pthread_mutex_lock(&desk->mutex);
  const unsigned long long skipped = desk->skipped, overtime = desk->overtime;
  pthread_mutex_unlock(&desk->mutex);
  return Py_BuildValue("KK", skipped, overtime);
}

static PyMethodDef module_methods[] = {
    {"desk", MakeDesk, METH_VARARGS, "(desk, context, cached_bytes, release) of a holder."},
    {"take", Take, METH_O, "Waits for a request: (release, device, bytes), or None where the desk is closed."},
    {"begin", Begin, METH_O, "Whether the request is still wanted."},
    {"finish", Finish, METH_VARARGS, "Answers the request that was begun."},
    {"close", Close, METH_O, "Ends it: requests are skipped from now on."},
    {"counts", Counts, METH_O, "(skipped, overtime)"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_holder",
    .m_doc = "A memory holder whose functions are Python's.",
    .m_methods = module_methods,
};

PyMODINIT_FUNC PyInit__holder(void) { return PyModuleDef_Init(&module_definition); }
