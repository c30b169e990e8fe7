#include "record.h"

#include <stdlib.h>
#include <string.h>

/* The length of a section, which is known when it has been written: 8 bytes, little-endian. */
#define RECORD_LENGTH_SIZE 8u

void record_raw(struct record_out *o, const void *data, size_t len) {
    if (!o->failed && len > 0 && buf_append(o->buf, data, len, &o->err) < 0)
        o->failed = true;
}

void record_put(struct record_out *o, uint64_t value) {
    uint8_t bytes[10];
    size_t n = 0;
    while (value >= 128) {
        bytes[n++] = (uint8_t)(value | 128);
        value >>= 7;
    }
    bytes[n++] = (uint8_t)value;
    record_raw(o, bytes, n);
}

/* Small numbers of either sign are short. */
void record_put_signed(struct record_out *o, int64_t value) {
    record_put(o, value < 0 ? ~((uint64_t)value << 1) : (uint64_t)value << 1);
}

void record_bytes(struct record_out *o, const void *data, size_t len) {
    record_put(o, len);
    record_raw(o, data, len);
}

void record_text(struct record_out *o, const char *text) {
    record_bytes(o, text, strlen(text));
}

size_t record_open(struct record_out *o, uint64_t tag) {
    static const uint8_t zeros[RECORD_LENGTH_SIZE] = {0};
    record_put(o, tag);
    size_t at = o->buf->len;
    record_raw(o, zeros, sizeof(zeros));
    return at;
}

void record_close(struct record_out *o, size_t at) {
    if (o->failed)
        return;
    uint64_t len = o->buf->len - at - RECORD_LENGTH_SIZE;
    for (size_t i = 0; i < RECORD_LENGTH_SIZE; i++)
        o->buf->data[at + i] = (char)(uint8_t)(len >> (8 * i));
}

static const char *record_skip(struct record_in *in, uint64_t len) {
    if (in->bad || len > in->len) {
        in->bad = true;
        return NULL;
    }
    const char *data = in->data;
    in->data += len;
    in->len -= (size_t)len;
    return data;
}

void record_get_raw(struct record_in *in, void *to, size_t len) {
    const char *data = record_skip(in, len);
    if (data != NULL)
        memcpy(to, data, len);
    else
        memset(to, 0, len);
}

uint64_t record_get(struct record_in *in) {
    uint64_t value = 0;
    if (in->bad || in->len == 0)
        return 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const char *byte = record_skip(in, 1);
        if (byte == NULL)
            return 0;
        value |= (uint64_t)(*byte & 127) << shift;
        if ((*byte & 128) == 0)
            return value;
    }
    in->bad = true;
    return 0;
}

int64_t record_get_signed(struct record_in *in) {
    uint64_t value = record_get(in);
    return (int64_t)((value & 1) != 0 ? ~(value >> 1) : value >> 1);
}

void record_get_bytes(struct record_in *in, void *to, size_t size) {
    if (record_get(in) != size)
        in->bad = true;
    record_get_raw(in, to, size);
}

void record_get_text(struct record_in *in, char *to, size_t size) {
    uint64_t len = record_get(in);
    if (len >= size)
        in->bad = true;
    const char *data = record_skip(in, len);
    to[0] = '\0';
    if (data == NULL)
        return;
    if (len > 0 && memchr(data, '\0', (size_t)len) != NULL) {
        in->bad = true;
        return;
    }
    memcpy(to, data, (size_t)len);
    to[len] = '\0';
}

char *record_get_copy(struct record_in *in, size_t *len) {
    uint64_t size = record_get(in);
    const char *data = record_skip(in, size);
    char *copy = data != NULL ? malloc((size_t)size + 1) : NULL;
    if (copy == NULL) {
        in->bad = true;
        return NULL;
    }
    memcpy(copy, data, (size_t)size);
    copy[size] = '\0';
    *len = (size_t)size;
    return copy;
}

bool record_next(struct record_in *in, uint64_t *tag, struct record_in *section) {
    uint8_t bytes[RECORD_LENGTH_SIZE];
    uint64_t len = 0;
    if (in->bad || in->len == 0)
        return false;
    *tag = record_get(in);
    record_get_raw(in, bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++)
        len |= (uint64_t)bytes[i] << (8 * i);
    const char *data = record_skip(in, len);
    if (data == NULL)
        return false;
    *section = (struct record_in){.data = data, .len = (size_t)len};
    return true;
}
