/* The walking core: finds the wanted fields of Avro records, maps plain paths, splices. No Python here, so that it can be
 * built alone under sanitizers (tests/fuzz). It reads nothing outside the buffers it is given and allocates nothing.
 *
 * A program is a tree of nodes in one array of int32: node = [op, argument, child, child, ...]. A child is the offset of a
 * node that stands before its parent, or NOTHING for a value that has no bytes (null, a record of nulls): such values are
 * never visited, so every visited value takes a byte and the work is linear in the data. The last node is the record. */
#ifndef LAKEMIRROR_WALK_H
#define LAKEMIRROR_WALK_H

#include <stddef.h>
#include <stdint.h>

enum { LM_LONG, LM_BYTES, LM_FIXED, LM_ARRAY, LM_RECORD, LM_UNION, LM_CAPTURE };
enum { LM_NOTHING = -1, LM_MAX_DEPTH = 64, LM_MAX_SLOTS = 64, LM_MAX_TARGET = 1024, LM_MAX_NAME = 255 };
#define LM_MAX_BLOCK ((size_t)1 << 31)

/* Where a wanted value lies: its bytes after the union's branch, if there is one; branch is -1 where there is none. */
typedef struct {
    int64_t branch, start, end;
} lm_range;

typedef struct {
    const uint8_t *bytes;
    size_t size;
} lm_text;

/* A literal prefix that ends in '/' and what stands in its place in the mirror. */
typedef struct {
    lm_text prefix, target;
} lm_rule;

/* A path among the slots: the branch that holds text (-1: no union) and the one that is null (-2: none). */
typedef struct {
    int64_t slot, text_branch, null_branch;
} lm_path;

/* The slots that planning needs; -1 where the schema has no such field (only content, key metadata, referenced). */
typedef struct {
    int64_t status, content, size;
    lm_path key_metadata, path, referenced;
} lm_entry_slots;

typedef struct {
    int64_t *sizes;
    int32_t *source_offsets, *target_offsets;
    uint8_t *sources, *targets;
} lm_columns;

typedef struct {
    size_t rows, source_bytes, target_bytes;
} lm_extent;

/* NULL, or what is wrong with the program. `starts` is scratch of `length` bytes; `root` the offset of the last node. */
const char *lm_check_program(const int32_t *program, size_t length, size_t slots, uint8_t *starts, size_t *root);

/* Walks `count` records from the start of the data; ranges has room for count * slots. NULL, or what is wrong. `pos` is
 * where the last record ends: whether the data should end there is the caller's to know. */
const char *lm_walk(const uint8_t *data, size_t size, const int32_t *program, size_t root, size_t count, size_t slots,
                    lm_range *ranges, size_t *pos);

/* The number of the rule that maps this path beyond doubt, or -1: then only the full rules of the library can tell. */
int lm_find_rule(lm_text path, const lm_rule *rules, size_t rule_count);

/* 1: every path is plain, and `new_size` is what lm_splice writes. 0: at least one is not. */
int lm_measure(const uint8_t *data, size_t size, const lm_range *ranges, size_t count, size_t slots, const lm_path *paths,
               size_t path_count, const lm_rule *rules, size_t rule_count, size_t *new_size);
/* Writes the block with every path mapped; returns how much it wrote, never more than `room`. */
size_t lm_splice(const uint8_t *data, size_t size, const lm_range *ranges, size_t count, size_t slots, const lm_path *paths,
                 size_t path_count, const lm_rule *rules, size_t rule_count, uint8_t *out, size_t room);

/* 1: every entry is regular, and `extent` says what lm_entries writes. 0: at least one needs a closer look. */
int lm_measure_entries(const uint8_t *data, size_t size, const lm_range *ranges, size_t count, size_t slots,
                       const lm_entry_slots *at, const lm_rule *rules, size_t rule_count, lm_extent *extent);
/* Writes the columns of the live entries; returns 0 if they would not fit into `extent`. */
int lm_entries(const uint8_t *data, size_t size, const lm_range *ranges, size_t count, size_t slots,
               const lm_entry_slots *at, const lm_rule *rules, size_t rule_count, const lm_extent *extent,
               lm_columns *columns);

#endif
