/* The words of one command, and its error. */
#include "peer.h"
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *words[MAX_WORDS];
int word_count;
char problem[256];

int fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (!problem[0]) vsnprintf(problem, sizeof problem, format, args);
    va_end(args);
    return 0;
}

int refused(const char *what, int error) { return fail("%s: %s", what, strerror(error)); }

char *text(const char *key) {
    size_t n = strlen(key);
    for (int i = 1; i < word_count; i++)
        if (!strncmp(words[i], key, n) && words[i][n] == '=') return words[i] + n + 1;
    return NULL;
}

static uint64_t parse_number(const char *key, const char *value) {
    char *end;
    errno = 0;
    uint64_t n = strtoull(value, &end, 0);
    if (errno || end == value || *end) fail("%s=%s is not a number", key, value);
    return n;
}

uint64_t number_or(const char *key, uint64_t otherwise) {
    char *value = text(key);
    return value ? parse_number(key, value) : otherwise;
}

uint64_t number(const char *key) {
    if (!text(key)) fail("%s= is missing", key);
    return number_or(key, 0);
}

int from_hex(const char *hex, uint8_t *to, size_t length) {
    if (strlen(hex) != 2 * length) return fail("%zu hexadecimal digits wanted", 2 * length);
    for (size_t i = 0; i < length; i++) {
        unsigned byte;
        if (!isxdigit((unsigned char)hex[2 * i]) || sscanf(hex + 2 * i, "%2x", &byte) != 1) return fail("not hexadecimal");
        to[i] = byte;
    }
    return 1;
}

void print_hex(const uint8_t *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) printf("%02x", bytes[i]);
}
