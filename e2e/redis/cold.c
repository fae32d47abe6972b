/* LMCache's native client is built with a newer libstdc++ than Debian 12 has, of
   which it wants one function: string.replace where it has to move what follows. */
#include <stdlib.h>
#include <string.h>

void _ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE15_M_replace_coldEPcmPKcmm(
    void *string, char *to, size_t had, const char *from, size_t n, size_t behind) {
	char *copy = malloc(n + 1);
	if (!copy)
		abort();
	memcpy(copy, from, n);
	memmove(to + n, to + had, behind);
	memcpy(to, copy, n);
	free(copy);
}
