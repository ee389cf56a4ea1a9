/* Reads every record of a batch: the compiled twin of `records.py`, which has the rules and the
 * reasons. Nothing here makes a Python object for a record; a property test compares both on good
 * and bad batches, fault by fault. Built for the stable ABI, so one file serves every Python. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>

/* `Fault` in records.py. */
enum fault { SOUND, CUT_OFF, LONG_NUMBER, BAD_LENGTH, UNEVEN, BAD_HEADERS, NAMELESS, BAD_TIME, TRAILING };

#define NO_TIMESTAMP (-1)
#define BLAMED_MAX 100

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} span;

/* Read a zigzag number of at most `bits` bits. `beyond` is the fault of a span that ends in it. */
static inline enum fault number(span *in, int bits, enum fault beyond, int64_t *out) {
    uint64_t value;
    uint8_t byte;
    if (in->at >= in->end) return beyond;
    byte = *in->at++;
    value = byte & 0x7F;
    if (byte & 0x80) {
        int shift = 7;
        do {
            if (in->at >= in->end) return beyond;
            byte = *in->at++;
            if (shift + 7 > bits && (byte >> (bits - shift)) != 0) return LONG_NUMBER;
            value |= (uint64_t)(byte & 0x7F) << shift;
            shift += 7;
        } while (byte & 0x80);
    }
    *out = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
    return SOUND;
}

/* Pass over a field with its length, -1 for null; `*out` is the length. */
static inline enum fault field(span *in, int64_t *out) {
    enum fault fault = number(in, 32, UNEVEN, out);
    if (fault != SOUND) return fault;
    if (*out < -1) return BAD_LENGTH;
    if (*out > in->end - in->at) return UNEVEN;
    if (*out > 0) in->at += *out;
    return SOUND;
}

static enum fault headers(span *in) {
    int64_t count, length;
    enum fault fault = number(in, 32, UNEVEN, &count);
    if (fault != SOUND) return fault;
    if (count < 0 || count > in->end - in->at) return BAD_HEADERS;
    while (count-- > 0) {
        if ((fault = field(in, &length)) != SOUND) return fault;
        if (length < 0) return NAMELESS;
        if ((fault = field(in, &length)) != SOUND) return fault;
    }
    return SOUND;
}

/* What one pass has found. */
typedef struct {
    int64_t index;
    int64_t newest;
    int is_numbered;
    int keyless_count, mistimed_count;
    int64_t keyless[BLAMED_MAX], mistimed[BLAMED_MAX];
} facts;

typedef struct {
    int64_t count, base, oldest, latest;
    int keys_required;
} rules;

static enum fault walk(span whole, const rules *rules, facts *found) {
    int64_t length, delta, number_in_batch, key, value, time;
    enum fault fault;
    for (found->index = 0; found->index < rules->count; found->index++) {
        span record;
        if ((fault = number(&whole, 32, CUT_OFF, &length)) != SOUND) return fault;
        if (length < 0) return BAD_LENGTH;
        if (length > whole.end - whole.at) return CUT_OFF;
        record.at = whole.at;
        record.end = whole.at += length;
        if (record.at >= record.end) return UNEVEN;
        record.at++; /* its attributes, which nobody uses */
        if ((fault = number(&record, 64, UNEVEN, &delta)) != SOUND) return fault;
        if ((fault = number(&record, 32, UNEVEN, &number_in_batch)) != SOUND) return fault;
        if ((fault = field(&record, &key)) != SOUND) return fault;
        if ((fault = field(&record, &value)) != SOUND) return fault;
        if (record.end - record.at == 1 && *record.at == 0) {
            record.at++; /* no headers, which is what most records have */
        } else if ((fault = headers(&record)) != SOUND) {
            return fault;
        }
        if (record.at != record.end) return UNEVEN;
        if (delta > 0 ? rules->base > INT64_MAX - delta : rules->base < INT64_MIN - delta) {
            return BAD_TIME;
        }
        time = rules->base + delta;
        if (time > found->newest) found->newest = time;
        if (number_in_batch != found->index) found->is_numbered = 0;
        if (key < 0 && rules->keys_required && found->keyless_count < BLAMED_MAX) {
            found->keyless[found->keyless_count++] = found->index;
        }
        if ((time < rules->oldest || time > rules->latest) && time != NO_TIMESTAMP
            && found->mistimed_count < BLAMED_MAX) {
            found->mistimed[found->mistimed_count++] = found->index;
        }
    }
    return whole.at == whole.end ? SOUND : TRAILING;
}

static PyObject *indexes(const int64_t *values, int count) {
    PyObject *made = PyTuple_New(count);
    for (int at = 0; made != NULL && at < count; at++) {
        PyObject *value = PyLong_FromLongLong(values[at]);
        if (value == NULL || PyTuple_SetItem(made, at, value) < 0) Py_CLEAR(made);
    }
    return made;
}

static PyObject *read_records(PyObject *module, PyObject *arguments) {
    PyObject *data, *keyless, *mistimed;
    Py_ssize_t at;
    Py_buffer view;
    rules rules;
    long long count, base, oldest, latest;
    facts found;
    enum fault fault;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OnLLLLp:read_records", &data, &at, &count, &base, &oldest,
                          &latest, &rules.keys_required)) {
        return NULL;
    }
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) return NULL;
    if (at < 0 || at > view.len) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "the records begin outside of the data");
        return NULL;
    }
    rules.count = count;
    rules.base = base;
    rules.oldest = oldest;
    rules.latest = latest;
    found.newest = NO_TIMESTAMP;
    found.is_numbered = 1;
    found.keyless_count = found.mistimed_count = 0;
    span whole = {(const uint8_t *)view.buf + at, (const uint8_t *)view.buf + view.len};
    fault = walk(whole, &rules, &found);
    PyBuffer_Release(&view);
    if (fault != SOUND) {
        found.newest = NO_TIMESTAMP;
        found.is_numbered = 1;
        found.keyless_count = found.mistimed_count = 0;
    }
    keyless = indexes(found.keyless, found.keyless_count);
    mistimed = indexes(found.mistimed, found.mistimed_count);
    if (keyless == NULL || mistimed == NULL) {
        Py_XDECREF(keyless);
        Py_XDECREF(mistimed);
        return NULL;
    }
    return Py_BuildValue("(iLLNNN)", (int)fault, (long long)found.index, (long long)found.newest,
                         PyBool_FromLong(found.is_numbered), keyless, mistimed);
}

static PyMethodDef functions[] = {
    {"read_records", read_records, METH_VARARGS, "Do as records.read_records."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_record_reader", "Reads the records of batches.", 0, functions, slots,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__record_reader(void) { return PyModuleDef_Init(&definition); }
