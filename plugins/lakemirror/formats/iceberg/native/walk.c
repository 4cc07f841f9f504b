/* Finds the wanted fields of Avro records. Every length is compared with what is left before it is believed. */
#include "walk.h"

#include <string.h>

typedef struct {
    const uint8_t *data;
    size_t size, pos;
    const int32_t *program;
    lm_range *slots; /* of the record being walked */
    uint64_t budget; /* visits left; a checked program cannot use them up */
    const char *problem;
} walk;

static int fail(walk *w, const char *problem) {
    w->problem = problem;
    return -1;
}

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && defined(__GNUC__)
/* Of a number within eight bytes, how many it takes; 0 if it is longer. */
static size_t short_number(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    word = ~word & UINT64_C(0x8080808080808080);
    return word == 0 ? 0 : (size_t)__builtin_ctzll(word) / 8 + 1;
}
#else
static size_t short_number(const uint8_t *at) { return at[0] < 0x80 ? 1 : 0; }
#endif

static inline int skip_long(walk *w) {
    const uint8_t *at = w->data + w->pos;
    size_t left = w->size - w->pos;
    if (left >= 8) {
        size_t taken = short_number(at);
        if (taken > 0) {
            w->pos += taken;
            return 0;
        }
    }
    for (size_t i = 0; i < left && i < 10; i++) {
        if (at[i] < 0x80) {
            if (i == 9 && at[i] > 1) break;
            w->pos += i + 1;
            return 0;
        }
    }
    return fail(w, "a number is cut or too long");
}

static int read_long(walk *w, int64_t *value) {
    uint64_t result = 0;
    size_t start = w->pos;
    if (skip_long(w) < 0) return -1;
    for (size_t i = w->pos; i > start; i--) result = result << 7 | (w->data[i - 1] & 0x7F);
    *value = (int64_t)(result >> 1 ^ (0 - (result & 1)));
    return 0;
}

static int skip_size(walk *w, uint64_t size, const char *problem) {
    if (size > w->size - w->pos) return fail(w, problem);
    w->pos += (size_t)size;
    return 0;
}

static int skip_bytes(walk *w) {
    int64_t size;
    if (w->pos < w->size && w->data[w->pos] < 0x80) { /* one byte holds most lengths */
        size = w->data[w->pos++];
        if (size & 1) size = -1;
        else size >>= 1;
    } else if (read_long(w, &size) < 0) {
        return -1;
    }
    if (size < 0) return fail(w, "a text or byte field has a negative length");
    return skip_size(w, (uint64_t)size, "a text or byte field does not fit");
}

static int visit(walk *w, int32_t offset, int depth);

static int visit_record(walk *w, const int32_t *node, int depth) {
    for (int32_t i = 0; i < node[1]; i++) {
        const int32_t *child = w->program + node[2 + i];
        int failed;
        if (child[0] == LM_LONG) failed = skip_long(w);
        else if (child[0] == LM_BYTES) failed = skip_bytes(w);
        else failed = visit(w, node[2 + i], depth + 1);
        if (failed) return -1;
    }
    return 0;
}

/* How many numbers an item is made of, if it is made of nothing else: column statistics are long runs of them. */
static uint64_t numbers_of(const walk *w, int32_t item) {
    if (item == LM_NOTHING || w->program[item] != LM_RECORD) return 0;
    const int32_t *node = w->program + item;
    for (int32_t i = 0; i < node[1]; i++)
        if (w->program[node[2 + i]] != LM_LONG) return 0;
    return (uint64_t)node[1];
}

static int visit_array(walk *w, int32_t item, int depth) {
    uint64_t numbers = numbers_of(w, item);
    for (;;) {
        int64_t count;
        if (read_long(w, &count) < 0) return -1;
        if (count == 0) return 0;
        uint64_t items = count < 0 ? 0 - (uint64_t)count : (uint64_t)count;
        if (count < 0 && skip_long(w) < 0) return -1; /* the size in bytes, which nothing here relies on */
        if (items > w->size) return fail(w, "an array claims more items than there are bytes");
        if (item == LM_NOTHING) continue;
        if (numbers > 0) {
            for (uint64_t i = 0; i < items * numbers; i++)
                if (skip_long(w) < 0) return -1;
            continue;
        }
        for (uint64_t i = 0; i < items; i++)
            if (visit(w, item, depth) < 0) return -1;
    }
}

static int read_branch(walk *w, const int32_t *node, int64_t *branch) {
    if (read_long(w, branch) < 0) return -1;
    if (*branch < 0 || *branch >= node[1]) return fail(w, "a union has no such branch");
    return 0;
}

static int visit_capture(walk *w, const int32_t *node, int depth) {
    lm_range *range = w->slots + node[1];
    int32_t value = node[2];
    range->branch = -1;
    if (value != LM_NOTHING && w->program[value] == LM_UNION) {
        const int32_t *branches = w->program + value;
        if (read_branch(w, branches, &range->branch) < 0) return -1;
        value = branches[2 + range->branch];
    }
    range->start = (int64_t)w->pos;
    if (value != LM_NOTHING && visit(w, value, depth + 1) < 0) return -1;
    range->end = (int64_t)w->pos;
    return 0;
}

static int visit(walk *w, int32_t offset, int depth) {
    const int32_t *node = w->program + offset;
    int64_t branch;
    if (depth > LM_MAX_DEPTH) return fail(w, "the schema is nested too deep");
    if (w->budget == 0) return fail(w, "the records hold more values than their bytes can");
    w->budget--;
    switch (node[0]) {
    case LM_LONG:
        return skip_long(w);
    case LM_BYTES:
        return skip_bytes(w);
    case LM_FIXED:
        return skip_size(w, (uint64_t)node[1], "a fixed field does not fit");
    case LM_ARRAY:
        return visit_array(w, node[2], depth + 1);
    case LM_RECORD:
        return visit_record(w, node, depth);
    case LM_UNION:
        if (read_branch(w, node, &branch) < 0) return -1;
        return node[2 + branch] == LM_NOTHING ? 0 : visit(w, node[2 + branch], depth + 1);
    case LM_CAPTURE:
        return visit_capture(w, node, depth);
    default:
        return fail(w, "the program is broken");
    }
}

/* How many children the node at `at` has, or -1 if it is no node. */
static int64_t children_of(const int32_t *program, size_t length, size_t at, size_t slots) {
    if (length - at < 2 || program[at + 1] < 0) return -1;
    int32_t argument = program[at + 1];
    int64_t children;
    switch (program[at]) {
    case LM_LONG:
    case LM_BYTES:
        return 0;
    case LM_FIXED:
        return argument > 0 ? 0 : -1; /* a fixed of no bytes is NOTHING */
    case LM_ARRAY:
        children = 1;
        break;
    case LM_CAPTURE:
        if ((size_t)argument >= slots) return -1;
        children = 1;
        break;
    case LM_RECORD:
    case LM_UNION:
        children = argument;
        break;
    default:
        return -1;
    }
    return (uint64_t)children > length - at - 2 ? -1 : children;
}

/* A child stands before its parent, is the start of a node, and is no record without fields. */
static int is_child(const int32_t *program, size_t at, int32_t child, const uint8_t *starts) {
    if (child < 0 || (size_t)child >= at || !starts[child]) return 0;
    return program[child] != LM_RECORD || program[child + 1] > 0;
}

const char *lm_check_program(const int32_t *program, size_t length, size_t slots, uint8_t *starts, size_t *root) {
    size_t at = 0, last = 0;
    if (length == 0 || length > INT32_MAX || slots > LM_MAX_SLOTS) return "the program is too small or too large";
    memset(starts, 0, length);
    while (at < length) {
        int64_t children = children_of(program, length, at, slots);
        if (children < 0) return "the program has a broken node";
        for (int64_t i = 0; i < children; i++) {
            int32_t child = program[at + 2 + (size_t)i];
            if (child == LM_NOTHING && program[at] != LM_RECORD) continue;
            if (!is_child(program, at, child, starts)) return "the program has a broken child";
        }
        starts[at] = 1;
        last = at;
        at += 2 + (size_t)children;
    }
    if (program[last] != LM_RECORD) return "the program does not end in a record";
    *root = last;
    return NULL;
}

const char *lm_walk(const uint8_t *data, size_t size, const int32_t *program, size_t root, size_t count, size_t slots,
                    lm_range *ranges, size_t *pos) {
    walk w = {data, size, 0, program, ranges, 0, NULL};
    *pos = 0;
    if (count > size) return "a block claims more records than it has bytes";
    if (size > LM_MAX_BLOCK) return "a block is too large";
    w.budget = (uint64_t)(LM_MAX_DEPTH + 2 * (slots + 1)) * (size + 1);
    for (size_t i = 0; i < count; i++, w.slots += slots) {
        for (size_t slot = 0; slot < slots; slot++) w.slots[slot] = (lm_range){-1, -1, -1};
        if (visit(&w, (int32_t)root, 0) < 0) break;
    }
    *pos = w.pos;
    return w.problem;
}
