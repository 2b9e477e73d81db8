// Constructors of a program on a C library before 2.34: there the program hands in a function that runs them, and
// today's start files hand in none. Newer libraries call it as well, in place of their own. Linked into portable
// programs with
// --wrap=__libc_start_main.
typedef int Main(int, char**, char**);
typedef int Initialise(int, char**, char**);

int __real___libc_start_main(Main* program, int count, char** arguments, Initialise* initialise, void (*finish)(void),
                             void (*finish_linker)(void), void* stack_end);

// The linker's own symbols.
extern Initialise* __preinit_array_start[];
extern Initialise* __preinit_array_end[];
extern Initialise* __init_array_start[];
extern Initialise* __init_array_end[];
extern void _init(void);

static int RunConstructors(int count, char** arguments, char** variables) {
  for (Initialise** one = __preinit_array_start; one < __preinit_array_end; ++one) (*one)(count, arguments, variables);
  _init();
  for (Initialise** one = __init_array_start; one < __init_array_end; ++one) (*one)(count, arguments, variables);
  return 0;
}

__attribute__((visibility("hidden"))) int __wrap___libc_start_main(Main* program, int count, char** arguments,
                                                                   Initialise* initialise, void (*finish)(void),
                                                                   void (*finish_linker)(void), void* stack_end) {
  if (initialise == 0) initialise = RunConstructors;
  return __real___libc_start_main(program, count, arguments, initialise, finish, finish_linker, stack_end);
}
