/* A library that says things on standard output whenever it likes, as drivers do. It is no plugin. */
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void hello(void) {
    printf("Driver v1.2\n");
    fflush(stdout);
    if (write(1, "raw words\n", 10) < 0) return;
    printf("kept back until the end\n");
}

__attribute__((destructor)) static void goodbye(void) {
    printf("driver unloaded\n");
    fflush(stdout);
}
