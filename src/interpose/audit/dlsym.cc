// dlsym in place of the system's: whoever looks a watched function up in a library gets ours. Shared runtimes and
// frameworks find the driver so, and not by linking.
//
// The system's dlsym looks at its return address, for RTLD_NEXT and the name space of the caller. So for every other
// name this one jumps there, with the stack as it was: no compiler promises that of a call.
#include <dlfcn.h>

#include "src/interpose/audit/watched.h"
#include "src/interpose/preload/symbols.h"

namespace preload = commpool::preload;

extern "C" __attribute__((visibility("hidden"), used)) void* commpoolAuditSystemDlsym() {
  return preload::DlsymOfSystem();
}

// Null: the system's dlsym shall answer.
extern "C" __attribute__((visibility("hidden"), used)) void* commpoolAuditFind(void* handle, const char* name) {
  if (name == nullptr) return nullptr;
  commpool::audit::Watched* const watched = commpool::audit::FindWatched(name);
  if (watched == nullptr) return nullptr;
  void* const met = preload::SystemDlsym(handle, name);
  // A search of everything meets ours first, also where no library has such a function.
  const bool ours = met != nullptr && preload::IsOurs(met);
  void* const found = ours ? preload::FindDefinition(name) : met;
  if (found == nullptr) return nullptr;
  void* const in_place = commpool::audit::InPlaceOf(*watched, found);
  return ours ? met : in_place;
}

#if defined(__x86_64__)
asm(R"(
.text
.globl dlsym
.type dlsym, @function
dlsym:
  .cfi_startproc
  endbr64
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call commpoolAuditFind
  testq %rax, %rax
  jne 1f
  call commpoolAuditSystemDlsym
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  jmp *%rax
1:
  .cfi_adjust_cfa_offset 24
  addq $24, %rsp
  .cfi_adjust_cfa_offset -24
  ret
  .cfi_endproc
.size dlsym, .-dlsym
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl dlsym
.type dlsym, %function
dlsym:
  .cfi_startproc
  stp x0, x1, [sp, #-32]!
  .cfi_adjust_cfa_offset 32
  str x30, [sp, #16]
  .cfi_rel_offset 30, 16
  bl commpoolAuditFind
  cbnz x0, 1f
  bl commpoolAuditSystemDlsym
  mov x16, x0
  ldp x0, x1, [sp]
  ldr x30, [sp, #16]
  add sp, sp, #32
  br x16
1:
  ldr x30, [sp, #16]
  add sp, sp, #32
  ret
  .cfi_endproc
.size dlsym, .-dlsym
)");
#else
#error "dlsym of this machine is not written"
#endif
