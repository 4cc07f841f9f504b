/* Maps paths that are plain beyond doubt. Whatever is unusual is left to the library, which knows all rules and errors:
 * another spelling of a prefix, a name that a store may refuse, a folder of the mirror's own, text that is not UTF-8. */
#include <string.h>

#include "walk.h"

/* The length of the UTF-8 sequence at `at` that starts with a byte above 0x7F, or 0 if it is none. */
static size_t utf8_sequence(const uint8_t *at, size_t left) {
    uint8_t lead = at[0], low = 0x80, high = 0xBF;
    size_t length;
    if (lead >= 0xC2 && lead <= 0xDF) length = 2;
    else if (lead >= 0xE0 && lead <= 0xEF) length = 3;
    else if (lead >= 0xF0 && lead <= 0xF4) length = 4;
    else return 0;
    if (left < length) return 0;
    if (lead == 0xE0) low = 0xA0; /* no longer form than needed, no surrogates, nothing above U+10FFFF */
    else if (lead == 0xED) high = 0x9F;
    else if (lead == 0xF0) low = 0x90;
    else if (lead == 0xF4) high = 0x8F;
    if (at[1] < low || at[1] > high) return 0;
    for (size_t i = 2; i < length; i++)
        if (at[i] < 0x80 || at[i] > 0xBF) return 0;
    return length;
}

static int is_plain_name(const uint8_t *name, size_t size) {
    if (size == 0 || size > LM_MAX_NAME) return 0;
    return !(name[0] == '.' && (size == 1 || (size == 2 && name[1] == '.')));
}

/* What follows a prefix: names that every store holds, the first of them no folder of the mirror's own. */
static int is_plain_rest(const uint8_t *rest, size_t size) {
    size_t name = 0, i = 0;
    if (size == 0 || rest[0] == '_') return 0;
    while (i < size) {
        uint8_t byte = rest[i];
        if (byte == '/') {
            if (!is_plain_name(rest + name, i - name)) return 0;
            name = ++i;
        } else if (byte < 0x20 || byte == 0x7F || byte == '#') {
            return 0;
        } else if (byte < 0x80) {
            i++;
        } else {
            size_t length = utf8_sequence(rest + i, size - i);
            if (length == 0) return 0;
            i += length;
        }
    }
    return is_plain_name(rest + name, size - name);
}

/* The first rule whose prefix the path has: the caller gives the longest first. */
static int find_prefix(lm_text path, const lm_rule *rules, size_t rule_count) {
    for (size_t i = 0; i < rule_count; i++) {
        lm_text prefix = rules[i].prefix;
        if (path.size > prefix.size && memcmp(path.bytes, prefix.bytes, prefix.size) == 0) return (int)i;
    }
    return -1;
}

/* The path is the very place of a rule, without the `/` that ends its prefix. */
static int is_place(lm_text path, const lm_rule *rules, size_t rule_count) {
    for (size_t i = 0; i < rule_count; i++) {
        lm_text prefix = rules[i].prefix;
        if (path.size + 1 == prefix.size && memcmp(path.bytes, prefix.bytes, path.size) == 0) return 1;
    }
    return 0;
}

int lm_find_rule(lm_text path, const lm_rule *rules, size_t rule_count) {
    int found = find_prefix(path, rules, rule_count);
    if (found < 0 || is_place(path, rules, rule_count)) return -1;
    size_t skipped = rules[found].prefix.size, rest = path.size - skipped;
    if (rules[found].target.size > LM_MAX_TARGET || rest > LM_MAX_TARGET - rules[found].target.size) return -1;
    return is_plain_rest(path.bytes + skipped, rest) ? found : -1;
}

static size_t long_size(uint64_t value) { /* of a number that is not negative, in zigzag */
    size_t size = 1;
    for (uint64_t rest = value << 1; rest > 0x7F; rest >>= 7) size++;
    return size;
}

static size_t write_long(uint64_t value, uint8_t *out) {
    size_t size = 0;
    uint64_t rest = value << 1;
    for (; rest > 0x7F; rest >>= 7) out[size++] = (uint8_t)(rest & 0x7F) | 0x80;
    out[size++] = (uint8_t)rest;
    return size;
}

/* The number in a range that was walked, or 0 with nothing read if the range is not within the data. */
static int number_in(const uint8_t *data, size_t size, lm_range range, int64_t *value, size_t *end) {
    uint64_t result = 0;
    if (range.start < 0 || range.end <= range.start || (uint64_t)range.end > size) return 0;
    size_t at = (size_t)range.start;
    for (int shift = 0; at < (size_t)range.end && shift <= 63; shift += 7) {
        uint8_t byte = data[at++];
        result |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(result >> 1 ^ (0 - (result & 1)));
            *end = at;
            return 1;
        }
    }
    return 0;
}

static int text_in(const uint8_t *data, size_t size, lm_range range, lm_text *text) {
    int64_t length;
    size_t at;
    if (!number_in(data, size, range, &length, &at)) return 0;
    if (length < 0 || (uint64_t)length != (uint64_t)range.end - at) return 0;
    *text = (lm_text){data + at, (size_t)length};
    return 1;
}

enum { PATH_NULL, PATH_PLAIN, PATH_OTHER };

static int look_at_path(const uint8_t *data, size_t size, const lm_range *record, lm_path path, const lm_rule *rules,
                        size_t rule_count, lm_text *text, int *rule) {
    lm_range range = record[path.slot];
    if (range.branch == path.null_branch) return PATH_NULL;
    if (range.branch != path.text_branch || !text_in(data, size, range, text)) return PATH_OTHER;
    *rule = lm_find_rule(*text, rules, rule_count);
    return *rule < 0 ? PATH_OTHER : PATH_PLAIN;
}

static size_t mapped_size(lm_text text, lm_rule rule) { return text.size - rule.prefix.size + rule.target.size; }

int lm_measure(const uint8_t *data, size_t size, const lm_range *ranges, size_t count, size_t slots, const lm_path *paths,
               size_t path_count, const lm_rule *rules, size_t rule_count, size_t *new_size) {
    size_t total = 0, done = 0;
    for (size_t i = 0; i < count; i++, ranges += slots) {
        for (size_t k = 0; k < path_count; k++) {
            lm_text text;
            int rule;
            switch (look_at_path(data, size, ranges, paths[k], rules, rule_count, &text, &rule)) {
            case PATH_NULL:
                continue;
            case PATH_OTHER:
                return 0;
            }
            lm_range range = ranges[paths[k].slot];
            if ((size_t)range.start < done) return 0; /* paths must come in the order of their bytes */
            size_t mapped = mapped_size(text, rules[rule]);
            total += (size_t)range.start - done + long_size(mapped) + mapped;
            done = (size_t)range.end;
        }
    }
    *new_size = total + (size - done);
    return 1;
}

static int copy(uint8_t *out, size_t room, size_t *at, const uint8_t *from, size_t size) {
    if (size > room - *at) return 0;
    if (size > 0) memcpy(out + *at, from, size);
    *at += size;
    return 1;
}

static int copy_mapped(uint8_t *out, size_t room, size_t *at, lm_text text, lm_rule rule) {
    return copy(out, room, at, rule.target.bytes, rule.target.size) &&
           copy(out, room, at, text.bytes + rule.prefix.size, text.size - rule.prefix.size);
}

size_t lm_splice(const uint8_t *data, size_t size, const lm_range *ranges, size_t count, size_t slots, const lm_path *paths,
                 size_t path_count, const lm_rule *rules, size_t rule_count, uint8_t *out, size_t room) {
    size_t at = 0, done = 0;
    for (size_t i = 0; i < count; i++, ranges += slots) {
        for (size_t k = 0; k < path_count; k++) {
            lm_range range = ranges[paths[k].slot];
            lm_text text;
            uint8_t length[10];
            if (range.branch != paths[k].text_branch || !text_in(data, size, range, &text)) continue;
            int rule = find_prefix(text, rules, rule_count);
            if (rule < 0 || (size_t)range.start < done) return at;
            size_t width = write_long(mapped_size(text, rules[rule]), length);
            if (!copy(out, room, &at, data + done, (size_t)range.start - done) || !copy(out, room, &at, length, width) ||
                !copy_mapped(out, room, &at, text, rules[rule]))
                return at;
            done = (size_t)range.end;
        }
    }
    copy(out, room, &at, data + done, size - done);
    return at;
}

enum { DELETED = 2, ENTRY_LIVE = 1, ENTRY_DELETED = 0, ENTRY_OTHER = -1 };

static int plain_number(const uint8_t *data, size_t size, const lm_range *record, int64_t slot, int64_t *value) {
    size_t end;
    return record[slot].branch == -1 && number_in(data, size, record[slot], value, &end);
}

/* A data file whose fields are all as they should be; a deleted one is known by its status and paths alone. */
static int look_at_entry(const uint8_t *data, size_t size, const lm_range *record, const lm_entry_slots *at,
                         const lm_rule *rules, size_t rule_count, lm_text *source, int *rule, int64_t *size_bytes) {
    int64_t status, content = 0;
    lm_text referenced;
    int referenced_rule;
    if (!plain_number(data, size, record, at->status, &status) || status < 0 || status > DELETED) return ENTRY_OTHER;
    if (look_at_path(data, size, record, at->path, rules, rule_count, source, rule) != PATH_PLAIN) return ENTRY_OTHER;
    if (at->referenced.slot >= 0 && look_at_path(data, size, record, at->referenced, rules, rule_count, &referenced,
                                                 &referenced_rule) == PATH_OTHER)
        return ENTRY_OTHER;
    if (status == DELETED) return ENTRY_DELETED;
    if (at->content >= 0 && !plain_number(data, size, record, at->content, &content)) return ENTRY_OTHER;
    if (content != 0) return ENTRY_OTHER;
    if (at->key_metadata.slot >= 0 && record[at->key_metadata.slot].branch != at->key_metadata.null_branch)
        return ENTRY_OTHER;
    if (!plain_number(data, size, record, at->size, size_bytes) || *size_bytes < 0) return ENTRY_OTHER;
    return ENTRY_LIVE;
}

int lm_measure_entries(const uint8_t *data, size_t size, const lm_range *ranges, size_t count, size_t slots,
                       const lm_entry_slots *at, const lm_rule *rules, size_t rule_count, lm_extent *extent) {
    *extent = (lm_extent){0, 0, 0};
    for (size_t i = 0; i < count; i++, ranges += slots) {
        lm_text source;
        int rule;
        int64_t size_bytes;
        int found = look_at_entry(data, size, ranges, at, rules, rule_count, &source, &rule, &size_bytes);
        if (found == ENTRY_OTHER) return 0;
        if (found == ENTRY_DELETED) continue;
        extent->rows++;
        extent->source_bytes += source.size;
        extent->target_bytes += mapped_size(source, rules[rule]);
        if (extent->source_bytes > INT32_MAX || extent->target_bytes > INT32_MAX) return 0; /* offsets are int32 */
    }
    return 1;
}

int lm_entries(const uint8_t *data, size_t size, const lm_range *ranges, size_t count, size_t slots,
               const lm_entry_slots *at, const lm_rule *rules, size_t rule_count, const lm_extent *extent,
               lm_columns *columns) {
    size_t row = 0, source_at = 0, target_at = 0;
    for (size_t i = 0; i < count; i++, ranges += slots) {
        lm_text source;
        int rule;
        int64_t size_bytes;
        if (look_at_entry(data, size, ranges, at, rules, rule_count, &source, &rule, &size_bytes) != ENTRY_LIVE) continue;
        if (row >= extent->rows) return 0;
        columns->sizes[row] = size_bytes;
        columns->source_offsets[row] = (int32_t)source_at;
        columns->target_offsets[row] = (int32_t)target_at;
        if (!copy(columns->sources, extent->source_bytes, &source_at, source.bytes, source.size) ||
            !copy_mapped(columns->targets, extent->target_bytes, &target_at, source, rules[rule]))
            return 0;
        row++;
    }
    columns->source_offsets[row] = (int32_t)source_at;
    columns->target_offsets[row] = (int32_t)target_at;
    return row == extent->rows && source_at == extent->source_bytes && target_at == extent->target_bytes;
}
