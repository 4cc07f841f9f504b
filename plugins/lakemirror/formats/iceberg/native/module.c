/* What Python sees of the walking core: `Program` and its three verbs. Buffers are checked here, bytes in the core. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "walk.h"

/* Rises with every change of what Python sees; avro_walk.py refuses any other. */
enum { LM_VERSION = 2, MAX_RULES = 1024, MAX_PATHS = 8 };

typedef struct {
    PyObject_HEAD
    int32_t *code;
    size_t root;
    Py_ssize_t slots;
} Program;

static int Program_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    Program *self = (Program *)object;
    static char *names[] = {"code", "slots", NULL};
    Py_buffer code;
    Py_ssize_t slots;
    const char *problem = "the program is made already";
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*n", names, &code, &slots)) return -1;
    size_t length = (size_t)code.len / sizeof(int32_t);
    uint8_t *starts = PyMem_Malloc(length + 1);
    int32_t *copy = PyMem_Malloc((size_t)code.len + 1);
    if (starts == NULL || copy == NULL) {
        PyErr_NoMemory();
    } else {
        memcpy(copy, code.buf, (size_t)code.len);
        if (slots < 0) problem = "slots below zero";
        else if (self->code == NULL) problem = lm_check_program(copy, length, (size_t)slots, starts, &self->root);
        if (problem != NULL) {
            PyErr_SetString(PyExc_ValueError, problem);
        } else {
            self->code = copy;
            self->slots = slots;
            copy = NULL;
        }
    }
    PyMem_Free(starts);
    PyMem_Free(copy);
    PyBuffer_Release(&code);
    return PyErr_Occurred() ? -1 : 0;
}

static void Program_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyMem_Free(((Program *)object)->code);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *Program_walk(PyObject *object, PyObject *args) {
    Program *self = (Program *)object;
    Py_buffer data;
    Py_ssize_t start, count;
    PyObject *answer = NULL;
    if (!PyArg_ParseTuple(args, "y*nn", &data, &start, &count)) return NULL;
    if (self->code == NULL || start < 0 || start > data.len || count < 0 || count > data.len - start) {
        PyErr_Format(PyExc_ValueError, "%zd records from byte %zd of %zd", count, start, data.len);
        goto done;
    }
    if (count > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(lm_range) / (self->slots + 1)) {
        PyErr_NoMemory();
        goto done;
    }
    PyObject *ranges = PyBytes_FromStringAndSize(NULL, count * self->slots * (Py_ssize_t)sizeof(lm_range));
    if (ranges == NULL) goto done;
    const uint8_t *from = (const uint8_t *)data.buf + start;
    lm_range *out = (lm_range *)(void *)PyBytes_AS_STRING(ranges);
    const char *problem;
    size_t taken;
    Py_BEGIN_ALLOW_THREADS
    problem = lm_walk(from, (size_t)(data.len - start), self->code, self->root, (size_t)count, (size_t)self->slots, out,
                      &taken);
    Py_END_ALLOW_THREADS
    if (problem == NULL) answer = Py_BuildValue("Nn", ranges, start + (Py_ssize_t)taken);
    else {
        Py_DECREF(ranges);
        PyErr_SetString(PyExc_ValueError, problem);
    }
done:
    PyBuffer_Release(&data);
    return answer;
}

/* A block with its ranges and rules, as `rewrite` and `entries` get them. */
typedef struct {
    Py_buffer data, ranges;
    size_t count, slots, rule_count;
    lm_rule *rules;
} Block;

static void release(Block *block) {
    PyMem_Free(block->rules);
    PyBuffer_Release(&block->ranges);
    PyBuffer_Release(&block->data);
}

static int text_of(PyObject *object, lm_text *text) {
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(object, &bytes, &size) < 0) return -1;
    *text = (lm_text){(const uint8_t *)bytes, (size_t)size};
    return 0;
}

/* The texts stay alive: the caller holds the tuple. */
static int prepare(Block *block, Py_ssize_t slots, PyObject *rules) {
    Py_ssize_t count = PyTuple_GET_SIZE(rules);
    size_t width = (size_t)slots * sizeof(lm_range);
    block->rules = NULL;
    int is_aligned = (uintptr_t)block->ranges.buf % sizeof(int64_t) == 0;
    if (slots < 1 || slots > LM_MAX_SLOTS || (size_t)block->ranges.len % width != 0 || !is_aligned || count > MAX_RULES) {
        PyErr_SetString(PyExc_ValueError, "ranges, slots and rules do not fit together");
        return -1;
    }
    block->slots = (size_t)slots;
    block->count = (size_t)block->ranges.len / width;
    block->rule_count = (size_t)count;
    block->rules = PyMem_New(lm_rule, count + 1);
    if (block->rules == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *rule = PyTuple_GET_ITEM(rules, i);
        if (!PyTuple_Check(rule) || PyTuple_GET_SIZE(rule) != 2) {
            PyErr_SetString(PyExc_TypeError, "a rule is a pair of bytes");
            return -1;
        }
        if (text_of(PyTuple_GET_ITEM(rule, 0), &block->rules[i].prefix) < 0 ||
            text_of(PyTuple_GET_ITEM(rule, 1), &block->rules[i].target) < 0)
            return -1;
    }
    return 0;
}

static int path_of(PyObject *object, size_t slots, lm_path *path) {
    long long slot, text, null;
    if (!PyArg_ParseTuple(object, "LLL", &slot, &text, &null)) return -1;
    if (slot < -1 || slot >= (long long)slots) {
        PyErr_SetString(PyExc_ValueError, "no such slot");
        return -1;
    }
    *path = (lm_path){slot, text, null};
    return 0;
}

static PyObject *rewrite(PyObject *module, PyObject *args) {
    Block block;
    Py_ssize_t slots;
    PyObject *paths, *rules, *answer = NULL;
    lm_path wanted[MAX_PATHS];
    size_t size = 0;
    int is_plain;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*nO!O!", &block.data, &block.ranges, &slots, &PyTuple_Type, &paths, &PyTuple_Type,
                          &rules))
        return NULL;
    if (prepare(&block, slots, rules) < 0) goto done;
    Py_ssize_t path_count = PyTuple_GET_SIZE(paths);
    if (path_count > MAX_PATHS) {
        PyErr_SetString(PyExc_ValueError, "too many paths");
        goto done;
    }
    for (Py_ssize_t i = 0; i < path_count; i++) {
        if (path_of(PyTuple_GET_ITEM(paths, i), block.slots, &wanted[i]) < 0) goto done;
        if (wanted[i].slot < 0) {
            PyErr_SetString(PyExc_ValueError, "no such slot");
            goto done;
        }
    }
    Py_BEGIN_ALLOW_THREADS
    is_plain = lm_measure(block.data.buf, (size_t)block.data.len, block.ranges.buf, block.count, block.slots, wanted,
                          (size_t)path_count, block.rules, block.rule_count, &size);
    Py_END_ALLOW_THREADS
    if (!is_plain || size > PY_SSIZE_T_MAX) {
        answer = Py_NewRef(Py_None);
        goto done;
    }
    answer = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (answer == NULL) goto done;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(answer);
    size_t written;
    Py_BEGIN_ALLOW_THREADS
    written = lm_splice(block.data.buf, (size_t)block.data.len, block.ranges.buf, block.count, block.slots, wanted,
                        (size_t)path_count, block.rules, block.rule_count, out, size);
    Py_END_ALLOW_THREADS
    if (written != size) {
        Py_CLEAR(answer);
        PyErr_Format(PyExc_SystemError, "a block was measured to %zu bytes and became %zu", size, written);
    }
done:
    release(&block);
    return answer;
}

static PyObject *entries(PyObject *module, PyObject *args) {
    Block block;
    Py_ssize_t slots;
    long long status, content, size;
    PyObject *key_metadata, *path, *referenced, *rules, *answer = NULL;
    PyObject *parts[5] = {NULL, NULL, NULL, NULL, NULL};
    lm_entry_slots at;
    lm_extent extent;
    int is_regular;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*n(LLL)O!O!O!O!", &block.data, &block.ranges, &slots, &status, &content, &size,
                          &PyTuple_Type, &key_metadata, &PyTuple_Type, &path, &PyTuple_Type, &referenced, &PyTuple_Type,
                          &rules))
        return NULL;
    if (prepare(&block, slots, rules) < 0) goto done;
    if (path_of(key_metadata, block.slots, &at.key_metadata) < 0 || path_of(path, block.slots, &at.path) < 0 ||
        path_of(referenced, block.slots, &at.referenced) < 0)
        goto done;
    if (status < 0 || status >= slots || content < -1 || content >= slots || size < 0 || size >= slots || at.path.slot < 0) {
        PyErr_SetString(PyExc_ValueError, "no such slot");
        goto done;
    }
    at.status = status;
    at.content = content;
    at.size = size;
    Py_BEGIN_ALLOW_THREADS
    is_regular = lm_measure_entries(block.data.buf, (size_t)block.data.len, block.ranges.buf, block.count, block.slots, &at,
                                    block.rules, block.rule_count, &extent);
    Py_END_ALLOW_THREADS
    if (!is_regular) {
        answer = Py_NewRef(Py_None);
        goto done;
    }
    Py_ssize_t rows = (Py_ssize_t)extent.rows;
    Py_ssize_t sizes[5] = {rows * 8, (rows + 1) * 4, (Py_ssize_t)extent.source_bytes, (rows + 1) * 4,
                           (Py_ssize_t)extent.target_bytes};
    for (int i = 0; i < 5; i++) {
        parts[i] = PyBytes_FromStringAndSize(NULL, sizes[i]);
        if (parts[i] == NULL) goto done;
    }
    lm_columns columns = {(int64_t *)(void *)PyBytes_AS_STRING(parts[0]), (int32_t *)(void *)PyBytes_AS_STRING(parts[1]),
                          (int32_t *)(void *)PyBytes_AS_STRING(parts[3]), (uint8_t *)PyBytes_AS_STRING(parts[2]),
                          (uint8_t *)PyBytes_AS_STRING(parts[4])};
    int is_whole;
    Py_BEGIN_ALLOW_THREADS
    is_whole = lm_entries(block.data.buf, (size_t)block.data.len, block.ranges.buf, block.count, block.slots, &at,
                          block.rules, block.rule_count, &extent, &columns);
    Py_END_ALLOW_THREADS
    if (is_whole) answer = Py_BuildValue("nOOOOO", rows, parts[0], parts[1], parts[2], parts[3], parts[4]);
    else PyErr_SetString(PyExc_SystemError, "entries are not what they were measured to be");
done:
    for (int i = 0; i < 5; i++) Py_XDECREF(parts[i]);
    release(&block);
    return answer;
}

static PyMethodDef program_methods[] = {
    {"walk", Program_walk, METH_VARARGS,
     "walk(data, start, count) -> int64 triples (branch, start, end) by record and slot, from `start` on; and the end"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot program_slots[] = {
    {Py_tp_doc, "Program(code, slots): a checked walking program"},
    {Py_tp_init, Program_init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, Program_dealloc},
    {Py_tp_methods, program_methods},
    {0, NULL},
};

static PyType_Spec program_spec = {"lakemirror.formats.iceberg._walk.Program", sizeof(Program), 0, Py_TPFLAGS_DEFAULT,
                                   program_slots};

static PyMethodDef methods[] = {
    {"rewrite", rewrite, METH_VARARGS, "rewrite(data, ranges, slots, paths, rules) -> the new block, or None"},
    {"entries", entries, METH_VARARGS,
     "entries(data, ranges, slots, (status, content, size), key_metadata, path, referenced, rules) -> columns, or None"},
    {NULL, NULL, 0, NULL},
};

static int add_types(PyObject *module) {
    PyObject *program = PyType_FromSpec(&program_spec);
    if (program == NULL) return -1;
    int failed = PyModule_AddObjectRef(module, "Program", program);
    Py_DECREF(program);
    return failed;
}

static int add_names(PyObject *module) {
    return add_types(module) < 0 ? -1 : PyModule_AddIntConstant(module, "VERSION", LM_VERSION);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, add_names}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_walk", "The walking core of the manifest rewriter.", 0, methods, module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__walk(void) { return PyModuleDef_Init(&definition); }
