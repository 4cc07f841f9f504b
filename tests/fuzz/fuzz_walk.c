/* Throws mutated blocks at the walking core, which is built with sanitizers: any read outside a buffer ends the run.
 *
 *   fuzz_walk CORPUS BLOCKS SEED
 *
 * Every block and program lies in memory of exactly its size. What the core accepts is checked: places lie inside the
 * block and in order, and what was measured is what is written. The same seed gives the same run. The corpus is made by
 * tests/fuzz/corpus.py: for each case the sizes of its parts, then the parts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "walk.h"

enum { MAX_CASES = 256, MAX_CHANGES = 4, MAX_PART = 40 };

typedef struct {
    uint32_t slots, count, code_size, data_size;
    lm_entry_slots at;
    int32_t *code;
    uint8_t *data;
} example;

static uint64_t state;

static uint64_t draw(void) { /* splitmix64 */
    uint64_t z = (state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static size_t below(size_t end) { return end == 0 ? 0 : (size_t)(draw() % end); }

static void *exactly(size_t size) {
    void *memory = malloc(size > 0 ? size : 1);
    if (memory == NULL) abort();
    return memory;
}

static void insist(int is_true, const char *what) {
    if (is_true) return;
    fprintf(stderr, "fuzz: broken promise: %s\n", what);
    abort();
}

static uint64_t number(FILE *file) {
    uint64_t value;
    if (fread(&value, sizeof value, 1, file) != 1) insist(0, "the corpus is whole");
    return value;
}

static int read_case(FILE *file, example *one) {
    uint64_t first;
    if (fread(&first, sizeof first, 1, file) != 1) return 0;
    one->slots = (uint32_t)first;
    one->count = (uint32_t)number(file);
    one->code_size = (uint32_t)number(file);
    one->data_size = (uint32_t)number(file);
    int64_t at[sizeof one->at / sizeof(int64_t)];
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) at[i] = (int64_t)number(file);
    memcpy(&one->at, at, sizeof at);
    one->code = exactly(one->code_size);
    one->data = exactly(one->data_size);
    insist(fread(one->code, 1, one->code_size, file) == one->code_size, "the corpus is whole");
    insist(fread(one->data, 1, one->data_size, file) == one->data_size, "the corpus is whole");
    return 1;
}

static const uint8_t EXTREMES[][10] = {
    {0x00},
    {0x01},
    {0x7F},
    {0x80, 0x01},
    {0xFE, 0xFF, 0xFF, 0xFF, 0x0F},
    {0xFF, 0xFF, 0xFF, 0xFF, 0x0F},
    {0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01},
    {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01},
    {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F},
    {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80},
};
static const size_t EXTREME_SIZES[] = {1, 1, 1, 2, 5, 5, 10, 10, 10, 10};

/* One to four changes: a byte, a bit, an extreme number written over or between, a part taken out, doubled or cut off. */
static uint8_t *mutated(const uint8_t *data, size_t size, size_t *new_size) {
    uint8_t *room = exactly(size + MAX_CHANGES * MAX_PART);
    memcpy(room, data, size);
    for (size_t left = 1 + below(MAX_CHANGES); left > 0 && size > 0; left--) {
        size_t at = below(size), part = 1 + below(size - at < MAX_PART ? size - at : MAX_PART), pick = below(10);
        switch (below(7)) {
        case 0:
            room[at] = (uint8_t)draw();
            break;
        case 1:
            room[at] ^= (uint8_t)(1u << below(8));
            break;
        case 2:
            for (size_t i = 0; i < EXTREME_SIZES[pick] && at + i < size; i++) room[at + i] = EXTREMES[pick][i];
            break;
        case 3:
            memmove(room + at + EXTREME_SIZES[pick], room + at, size - at);
            memcpy(room + at, EXTREMES[pick], EXTREME_SIZES[pick]);
            size += EXTREME_SIZES[pick];
            break;
        case 4:
            memmove(room + at, room + at + part, size - at - part);
            size -= part;
            break;
        case 5:
            memmove(room + at + part, room + at, size - at);
            size += part;
            break;
        default:
            if (below(4) == 0) size = at;
        }
    }
    uint8_t *tight = exactly(size);
    memcpy(tight, room, size);
    free(room);
    *new_size = size;
    return tight;
}

static lm_text text(const char *from) { return (lm_text){(const uint8_t *)from, strlen(from)}; }

/* What the core says of an accepted block must be true of it. */
static void check_answer(size_t size, const lm_range *ranges, size_t count, size_t slots, size_t end) {
    int64_t last = 0;
    insist(end <= size, "a walk ends within the block");
    for (size_t i = 0; i < count * slots; i++) {
        lm_range range = ranges[i];
        if (range.start < 0) continue;
        insist(last <= range.start && range.start <= range.end && (uint64_t)range.end <= size, "places are in order");
        last = range.end;
    }
}

static void use_answer(const example *one, const uint8_t *data, size_t size, const lm_range *ranges, size_t count) {
    const lm_rule rules[] = {
        {text("s3://lake/wh/t/cold/"), text("gs://cloud/t/_roots/cold/")},
        {text("s3://lake/wh/t/"), text("gs://cloud/t/")},
        {text("/lake/"), text("file:///mirror/a/longer/place/")},
    };
    lm_path paths[] = {one->at.path, one->at.referenced};
    size_t path_count = one->at.referenced.slot < 0 ? 1 : 2, new_size;
    if (lm_measure(data, size, ranges, count, one->slots, paths, path_count, rules, 3, &new_size)) {
        uint8_t *out = exactly(new_size);
        size_t written = lm_splice(data, size, ranges, count, one->slots, paths, path_count, rules, 3, out, new_size);
        insist(written == new_size, "a splice is as long as it was measured");
        free(out);
    }
    lm_extent extent;
    if (lm_measure_entries(data, size, ranges, count, one->slots, &one->at, rules, 3, &extent)) {
        lm_columns columns = {exactly(extent.rows * 8), exactly((extent.rows + 1) * 4), exactly((extent.rows + 1) * 4),
                              exactly(extent.source_bytes), exactly(extent.target_bytes)};
        insist(lm_entries(data, size, ranges, count, one->slots, &one->at, rules, 3, &extent, &columns),
               "entries are as many as were measured");
        free(columns.sizes);
        free(columns.source_offsets);
        free(columns.target_offsets);
        free(columns.sources);
        free(columns.targets);
    }
}

/* Returns 1 if the core took the block. Now and then the program is changed too, and must be refused or be harmless. */
static int throw_one(const example *one) {
    size_t size, root, code_size = one->code_size, end;
    uint8_t *data = mutated(one->data, one->data_size, &size);
    int32_t *code;
    int is_changed = below(16) == 0;
    if (is_changed) {
        code = (int32_t *)(void *)mutated((const uint8_t *)one->code, one->code_size, &code_size);
    } else {
        code = exactly(code_size);
        memcpy(code, one->code, code_size);
    }
    size_t length = code_size / sizeof(int32_t), count = one->count;
    if (below(4) == 0) count = below(2 * one->count + 2);
    uint8_t *starts = exactly(length);
    int is_taken = 0;
    const char *problem = lm_check_program(code, length, one->slots, starts, &root);
    insist(problem == NULL || is_changed, "a program of the library is taken");
    if (problem == NULL) {
        lm_range *ranges = exactly(count * one->slots * sizeof(lm_range));
        is_taken = lm_walk(data, size, code, root, count, one->slots, ranges, &end) == NULL;
        if (is_taken && !is_changed) check_answer(size, ranges, count, one->slots, end);
        if (is_taken && one->slots > 0) use_answer(one, data, size, ranges, count);
        free(ranges);
    }
    free(starts);
    free(code);
    free(data);
    return is_taken;
}

int main(int argc, char **argv) {
    static example cases[MAX_CASES];
    size_t count = 0, taken = 0;
    FILE *file = argc == 4 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL) {
        fprintf(stderr, "usage: fuzz_walk CORPUS BLOCKS SEED\n");
        return 2;
    }
    while (count < MAX_CASES && read_case(file, &cases[count])) count++;
    fclose(file);
    insist(count > 0, "the corpus holds a case");
    size_t blocks = (size_t)strtoull(argv[2], NULL, 10);
    state = strtoull(argv[3], NULL, 10);
    for (size_t i = 0; i < blocks; i++) taken += (size_t)throw_one(&cases[below(count)]);
    printf("%zu blocks, %zu taken, %zu refused, 0 crashes, 0 over-reads\n", blocks, taken, blocks - taken);
    for (size_t i = 0; i < count; i++) {
        free(cases[i].code);
        free(cases[i].data);
    }
    return 0;
}
