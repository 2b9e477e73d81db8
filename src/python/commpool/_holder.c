// A memory holder with Python functions, for threads that must not wait for Python. An allocation that runs out of
// memory posts a request and waits for a bounded time. A thread of Python takes the request and does the work.
//
// An allocating thread may hold what Python needs: the GIL, or the lock of the library that is asked. So the thread
// withdraws a request that nobody takes in time, and abandons one that is not done in time. Python calls this file by
// ctypes.
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

typedef enum { IDLE, POSTED, TAKEN, BEGUN, DONE } Stage;

typedef struct {
  // What Python reads, through holders.Desk. From TAKEN on a request does not change until it is done or given up.
  int release;  // the request: 1 to give back, 0 to say what it holds
  int device;
  uint64_t bytes;     // requested
  uint64_t skipped;   // requests that did not begin in time
  uint64_t overtime;  // requests that began, and were not done in time

  pthread_mutex_t mutex;
  pthread_cond_t changed;
  Stage stage;
  int wanted;       // whether a thread still waits for the request that is TAKEN or BEGUN
  int closed;       // the Python thread must end
  uint64_t answer;  // for a request that is DONE
  uint64_t begin_ms;
  uint64_t done_ms;
} Desk;

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

// Waits until the desk is at `stage`. Returns 0 if that took too long. REQUIRES: the mutex.
static int Await(Desk* desk, Stage stage, uint64_t milliseconds) {
  const struct timespec deadline = After(milliseconds);
  while (desk->stage < stage) {
    if (pthread_cond_timedwait(&desk->changed, &desk->mutex, &deadline) != 0) return desk->stage >= stage;
  }
  return 1;
}

// Waits until no other request is under way. Returns 0 if that took too long, or if Python still works on a request
// that its thread gave up: nobody knows when that ends. REQUIRES: the mutex.
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

// Call it after a request is posted. Its place becomes free, unless Python still works on it. REQUIRES: the mutex.
static uint64_t Answer(Desk* desk) {
  uint64_t* missed = !Await(desk, BEGUN, desk->begin_ms) ? &desk->skipped
                     : !Await(desk, DONE, desk->done_ms) ? &desk->overtime
                                                         : NULL;
  if (missed != NULL) {
    ++*missed;
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

#define COMMPOOL_FOR_PYTHON __attribute__((visibility("default")))

// The holder's functions. Their context is the desk.
COMMPOOL_FOR_PYTHON uint64_t commpool_desk_cached_bytes(int device, void* desk) { return Ask(desk, 0, device, 0); }
COMMPOOL_FOR_PYTHON uint64_t commpool_desk_release(int device, uint64_t bytes, void* desk) {
  return Ask(desk, 1, device, bytes);
}

// ---- What the Python thread calls -----------------------------------------------------------------------------------

// Never deleted, because a thread of the library may be in it at any time. Null if the host has no memory.
COMMPOOL_FOR_PYTHON Desk* commpool_desk_new(uint64_t begin_ms, uint64_t done_ms) {
  Desk* desk = calloc(1, sizeof(Desk));
  if (desk == NULL) return NULL;
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&desk->mutex, NULL);
  pthread_cond_init(&desk->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  desk->begin_ms = begin_ms;
  desk->done_ms = done_ms;
  return desk;
}

// Waits for a request and takes it. Returns 0 when the desk is closed. Called without the GIL.
COMMPOOL_FOR_PYTHON int commpool_desk_take(Desk* desk) {
  pthread_mutex_lock(&desk->mutex);
  while (!desk->closed && desk->stage != POSTED) pthread_cond_wait(&desk->changed, &desk->mutex);
  const int closed = desk->closed;
  if (!closed) Change(desk, TAKEN);
  pthread_mutex_unlock(&desk->mutex);
  return !closed;
}

// Whether a thread still waits for the request that was taken. Asked when Python has the GIL and all other locks.
COMMPOOL_FOR_PYTHON int commpool_desk_begin(Desk* desk) {
  pthread_mutex_lock(&desk->mutex);
  const int wanted = desk->wanted;
  Change(desk, wanted ? BEGUN : IDLE);
  pthread_mutex_unlock(&desk->mutex);
  return wanted;
}

// Answers the request that has begun.
COMMPOOL_FOR_PYTHON void commpool_desk_finish(Desk* desk, uint64_t answer) {
  pthread_mutex_lock(&desk->mutex);
  desk->answer = answer;
  Change(desk, desk->wanted ? DONE : IDLE);
  pthread_mutex_unlock(&desk->mutex);
}

// From now on requests are skipped.
COMMPOOL_FOR_PYTHON void commpool_desk_close(Desk* desk) {
  pthread_mutex_lock(&desk->mutex);
  desk->closed = 1;
  pthread_cond_broadcast(&desk->changed);
  pthread_mutex_unlock(&desk->mutex);
}
