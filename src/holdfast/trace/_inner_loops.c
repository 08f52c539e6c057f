/* The inner loops of `trace/inner_loops.py`, compiled: sorting, searching and mixing 64-bit words.

   Each function is given contiguous buffers of 8-byte numbers, writes into a buffer of the caller's, and gives the
   interpreter's lock back while it works. What they compute is said once, in `inner_loops.py`, which has the same in
   NumPy; the tests compare the two. Nothing here knows of rows, traces or epochs. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
static int highest_bit(uint64_t word) { return 63 - __builtin_clzll(word); }
#else
#define PREFETCH(address) ((void)0)
static int highest_bit(uint64_t word)
{
    int bit = 0;
    while (word >>= 1) bit++;
    return bit;
}
#endif

/* -- buffers ------------------------------------------------------------------------------------------------------- */

enum { MOST_BUFFERS = 4 };

typedef struct {
    Py_buffer views[MOST_BUFFERS];
    int count;
} Buffers;

static void release(Buffers *held)
{
    while (held->count) PyBuffer_Release(&held->views[--held->count]);
}

/* Take the first `count` arguments as contiguous buffers of 8-byte numbers, those from `written` on as writable. */
static int take(Buffers *held, PyObject *const *arguments, Py_ssize_t given, int count, int written)
{
    held->count = 0;
    if (given != count) {
        PyErr_Format(PyExc_TypeError, "%d arrays are needed, %zd were given", count, given);
        return -1;
    }
    for (int i = 0; i < count; i++) {
        int flags = i < written ? PyBUF_SIMPLE : PyBUF_WRITABLE;
        if (PyObject_GetBuffer(arguments[i], &held->views[i], flags) < 0) {
            release(held);
            return -1;
        }
        held->count++;
        if (held->views[i].len % 8) {
            PyErr_SetString(PyExc_ValueError, "an array of 8-byte numbers is needed");
            release(held);
            return -1;
        }
    }
    return 0;
}

static Py_ssize_t length(const Buffers *held, int i) { return held->views[i].len / 8; }

static int too_short(Buffers *held, int i, Py_ssize_t least)
{
    if (length(held, i) >= least) return 0;
    PyErr_SetString(PyExc_ValueError, "the array for the result is too short");
    release(held);
    return 1;
}

/* -- sorting ------------------------------------------------------------------------------------------------------- */

/* A stable radix sort from the highest bits that differ. Each step spreads a run over so many buckets that those of
   hashes have a few rows, which an insertion sort finishes; what is equal in all bits is left as it is. Words that
   have few bits that differ, or many that are equal, cost fewer steps: a step looks first which bits differ at all.
   A run takes at most one step per bit that differs in it, O(rows) each. */

typedef struct {
    uint64_t key;
    int64_t row;
} Pair;

enum { FEW = 24, PER_BUCKET = 6, MOST_BITS = 11 };

static void insertion(Pair *run, Py_ssize_t rows)
{
    for (Py_ssize_t i = 1; i < rows; i++) {
        Pair moved = run[i];
        Py_ssize_t j = i;
        for (; j > 0 && run[j - 1].key > moved.key; j--) run[j] = run[j - 1];
        run[j] = moved;
    }
}

/* Sort `run`; `other` has room for as many. The result is in `run`. */
static void sort_run(Pair *run, Pair *other, Py_ssize_t rows)
{
    if (rows <= FEW) {
        insertion(run, rows);
        return;
    }
    uint64_t first = run[0].key, differing = 0;
    for (Py_ssize_t i = 1; i < rows; i++) differing |= run[i].key ^ first;
    if (!differing) return;
    int top = highest_bit(differing) + 1, bits = 1;
    while (bits < MOST_BITS && bits < top && (rows >> bits) > PER_BUCKET) bits++;
    int shift = top - bits;
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    uint32_t buckets = (uint32_t)1 << bits;
    Py_ssize_t ends[(1 << MOST_BITS) + 1];
    memset(ends, 0, (buckets + 1) * sizeof *ends);
    for (Py_ssize_t i = 0; i < rows; i++) ends[((run[i].key >> shift) & mask) + 1]++;
    for (uint32_t bucket = 0; bucket < buckets; bucket++) ends[bucket + 1] += ends[bucket];
    for (Py_ssize_t i = 0; i < rows; i++) other[ends[(run[i].key >> shift) & mask]++] = run[i];
    /* Now ends[b] is where bucket b ends. */
    Py_ssize_t start = 0;
    for (uint32_t bucket = 0; bucket < buckets; bucket++) {
        Py_ssize_t size = ends[bucket] - start;
        if (shift && size > 1) sort_run(other + start, run + start, size);
        start = ends[bucket];
    }
    memcpy(run, other, rows * sizeof *run);
}

static PyObject *argsort(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    Buffers held;
    if (take(&held, arguments, given, 2, 1) < 0) return NULL;
    Py_ssize_t rows = length(&held, 0);
    if (too_short(&held, 1, rows)) return NULL;
    const uint64_t *keys = held.views[0].buf;
    int64_t *order = held.views[1].buf;
    Pair *pairs = malloc((size_t)(rows ? rows : 1) * 2 * sizeof *pairs);
    if (!pairs) {
        release(&held);
        return PyErr_NoMemory();
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < rows; i++) {
        pairs[i].key = keys[i];
        pairs[i].row = i;
    }
    sort_run(pairs, pairs + rows, rows);
    for (Py_ssize_t i = 0; i < rows; i++) order[i] = pairs[i].row;
    Py_END_ALLOW_THREADS
    free(pairs);
    release(&held);
    Py_RETURN_NONE;
}

/* -- searching ----------------------------------------------------------------------------------------------------- */

/* The first index whose word is not below `wanted`, by halves. It is in (low, high]. */
static Py_ssize_t halved(const uint64_t *words, Py_ssize_t low, Py_ssize_t high, uint64_t wanted)
{
    while (high - low > 1) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (words[middle] < wanted)
            low = middle;
        else
            high = middle;
    }
    return high;
}

/* The first index in [low, rows) whose word is not below `wanted`: ever longer steps, then halves. */
static Py_ssize_t not_below(const uint64_t *words, Py_ssize_t low, Py_ssize_t rows, Py_ssize_t step, uint64_t wanted)
{
    if (low >= rows || words[low] >= wanted) return low;
    Py_ssize_t high = low + step; /* words[low] < wanted all the time */
    while (high < rows && words[high] < wanted) {
        low = high;
        step *= 2;
        high = low + step;
    }
    return halved(words, low, high > rows ? rows : high, wanted);
}

static PyObject *lower_bounds(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    Buffers held;
    if (take(&held, arguments, given, 3, 2) < 0) return NULL;
    Py_ssize_t rows = length(&held, 0), count = length(&held, 1);
    if (too_short(&held, 2, count)) return NULL;
    const uint64_t *words = held.views[0].buf, *wanted = held.views[1].buf;
    int64_t *found = held.views[2].buf;
    Py_BEGIN_ALLOW_THREADS
    Py_ssize_t step = count ? rows / count / 2 + 1 : 1, at = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i && wanted[i] < wanted[i - 1]) at = 0; /* not sorted: begin anew */
        at = not_below(words, at, rows, step, wanted[i]);
        found[i] = at;
    }
    Py_END_ALLOW_THREADS
    release(&held);
    Py_RETURN_NONE;
}

/* Where the words are spread evenly, as hashes are, the distance between two words says how many words lie between them,
   give or take the square root. So a search begins at a guess. Most of its time would still be spent waiting for memory
   that is far apart; so STREAMS searches, each through its own share of the wanted words, take turns, and the memory
   around a guess is on its way while the others search. A guess changes no result. Where guesses are worse than steps
   from the last word found, they are not made any more. Where wanted words are near each other (less than APART rows),
   or few, a search from the last one found is as fast. */
enum { STREAMS = 8, LINE = 8, FEW_WANTED = 64, APART = 32, TRIED = 256 };

/* The first index in [low, rows) whose word is not below `wanted`, begun at `guess`. */
static Py_ssize_t not_below_near(const uint64_t *words, Py_ssize_t low, Py_ssize_t rows, Py_ssize_t guess,
                                 uint64_t wanted)
{
    if (words[guess] < wanted) return not_below(words, guess, rows, LINE, wanted);
    Py_ssize_t high = guess, step = LINE; /* words[high] >= wanted all the time */
    while (high > low) {
        Py_ssize_t next = high - low > step ? high - step : low;
        if (words[next] < wanted) return halved(words, next, high, wanted);
        high = next;
        step *= 2;
    }
    return high;
}

/* For each wanted word (sorted, unique) the rows [left, right) that have it; right is left where there is none. */
static void find_runs(const uint64_t *words, Py_ssize_t rows, const uint64_t *wanted, Py_ssize_t count, int64_t *left,
                      int64_t *right)
{
    Py_ssize_t step = rows / count / 2 + 1, share = (count + STREAMS - 1) / STREAMS;
    Py_ssize_t at[STREAMS], guess[STREAMS], off = 0, passed = 0;
    double density = (double)rows / ((double)(words[rows - 1] - words[0]) + 1.0);
    int guesses = 1;
    for (int s = 0; s < STREAMS; s++) {
        Py_ssize_t first = s * share;
        at[s] = first < count ? not_below(words, 0, rows, rows / 2 + 1, wanted[first]) : rows;
    }
    for (Py_ssize_t i = 0; i < share; i++) {
        if (i == TRIED && off > passed) guesses = 0;
        for (int s = 0; s < STREAMS; s++) {
            Py_ssize_t which = s * share + i;
            guess[s] = at[s];
            if (which >= count || at[s] >= rows || wanted[which] <= words[at[s]]) continue;
            double steps = guesses ? (double)(wanted[which] - words[at[s]]) * density : (double)step;
            guess[s] = steps < (double)(rows - 1 - at[s]) ? at[s] + (Py_ssize_t)steps : rows - 1;
            PREFETCH(&words[guess[s]]);
            PREFETCH(&words[guess[s] > LINE ? guess[s] - LINE : 0]);
            PREFETCH(&words[guess[s] + LINE < rows ? guess[s] + LINE : rows - 1]);
        }
        for (int s = 0; s < STREAMS; s++) {
            Py_ssize_t which = s * share + i, from = at[s];
            if (which >= count) continue;
            if (from >= rows) {
                left[which] = right[which] = rows;
                continue;
            }
            uint64_t word = wanted[which];
            Py_ssize_t found = not_below_near(words, from, rows, guess[s], word), end = found;
            off += found > guess[s] ? found - guess[s] : guess[s] - found;
            passed += found - from;
            if (end < rows && words[end] == word) {
                end++;
                if (end < rows && words[end] == word)
                    end = word == UINT64_MAX ? rows : not_below(words, end, rows, 1, word + 1);
            }
            left[which] = found;
            right[which] = at[s] = end;
        }
    }
}

/* For each wanted word (sorted, unique) that is there: its index, and the rows [left, right) that have it. Returns how
   many are there. */
static PyObject *runs_of(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    Buffers held;
    if (take(&held, arguments, given, 3, 2) < 0) return NULL;
    Py_ssize_t rows = length(&held, 0), count = length(&held, 1), there = 0;
    if (too_short(&held, 2, 3 * count)) return NULL;
    const uint64_t *words = held.views[0].buf, *wanted = held.views[1].buf;
    int64_t *which = held.views[2].buf, *left = which + count, *right = left + count;
    Py_BEGIN_ALLOW_THREADS
    if (count >= FEW_WANTED && rows / count >= APART) {
        find_runs(words, rows, wanted, count, left, right);
        for (Py_ssize_t i = 0; i < count; i++) {
            if (right[i] == left[i]) continue;
            which[there] = i;
            left[there] = left[i];
            right[there++] = right[i];
        }
    } else {
        Py_ssize_t step = count ? rows / count / 2 + 1 : 1, at = 0;
        for (Py_ssize_t i = 0; i < count; i++) {
            at = not_below(words, at, rows, step, wanted[i]);
            if (at == rows) break;
            if (words[at] != wanted[i]) continue;
            which[there] = i;
            left[there] = at++;
            if (at < rows && words[at] == wanted[i])
                at = wanted[i] == UINT64_MAX ? rows : not_below(words, at, rows, 1, wanted[i] + 1);
            right[there++] = at;
        }
    }
    Py_END_ALLOW_THREADS
    release(&held);
    return PyLong_FromSsize_t(there);
}

/* For each wanted word (any order, any number of times): the first row that has it, or would, and how many do. */
static PyObject *spans(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    Buffers held;
    if (take(&held, arguments, given, 3, 2) < 0) return NULL;
    Py_ssize_t rows = length(&held, 0), count = length(&held, 1);
    if (too_short(&held, 2, 2 * count)) return NULL;
    const uint64_t *words = held.views[0].buf, *wanted = held.views[1].buf;
    int64_t *starts = held.views[2].buf, *lengths = starts + count;
    Py_BEGIN_ALLOW_THREADS
    Py_ssize_t step = count ? rows / count / 2 + 1 : 1, at = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i && wanted[i] == wanted[i - 1]) {
            starts[i] = starts[i - 1];
            lengths[i] = lengths[i - 1];
            continue;
        }
        if (i && wanted[i] < wanted[i - 1]) at = 0; /* not sorted: begin anew */
        starts[i] = at = not_below(words, at, rows, step, wanted[i]);
        if (at < rows && words[at] == wanted[i])
            at = wanted[i] == UINT64_MAX ? rows : not_below(words, at, rows, 1, wanted[i] + 1);
        lengths[i] = at - starts[i];
    }
    Py_END_ALLOW_THREADS
    release(&held);
    Py_RETURN_NONE;
}

/* -- mixing, gathering, summing ------------------------------------------------------------------------------------ */

static PyObject *mix(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    Buffers held;
    if (take(&held, arguments, given, 1, 0) < 0) return NULL;
    uint64_t *words = held.views[0].buf;
    Py_ssize_t rows = length(&held, 0);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < rows; i++) {
        uint64_t word = words[i] + UINT64_C(0x9E3779B97F4A7C15);
        word = (word ^ (word >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
        word = (word ^ (word >> 27)) * UINT64_C(0x94D049BB133111EB);
        words[i] = word ^ (word >> 31);
    }
    Py_END_ALLOW_THREADS
    release(&held);
    Py_RETURN_NONE;
}

static PyObject *gather(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    Buffers held;
    if (take(&held, arguments, given, 3, 2) < 0) return NULL;
    Py_ssize_t rows = length(&held, 0), count = length(&held, 1), wrong = -1;
    if (too_short(&held, 2, count)) return NULL;
    const uint64_t *values = held.views[0].buf, *indices = held.views[1].buf;
    uint64_t *found = held.views[2].buf;
    enum { AHEAD = 16 };
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i + AHEAD < count && indices[i + AHEAD] < (uint64_t)rows) PREFETCH(&values[indices[i + AHEAD]]);
        if (indices[i] >= (uint64_t)rows) { /* below 0 is a large number here */
            wrong = i;
            break;
        }
        found[i] = values[indices[i]];
    }
    Py_END_ALLOW_THREADS
    if (wrong >= 0)
        PyErr_Format(PyExc_IndexError, "index %lld is not one of %zd values", (long long)indices[wrong], rows);
    release(&held);
    return wrong >= 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *run_sums(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    Buffers held;
    if (take(&held, arguments, given, 3, 2) < 0) return NULL;
    Py_ssize_t rows = length(&held, 0), count = length(&held, 1);
    if (too_short(&held, 2, count)) return NULL;
    const uint64_t *values = held.views[0].buf;
    const int64_t *starts = held.views[1].buf;
    uint64_t *found = held.views[2].buf, wrong = 0; /* sums of words wrap as those of int64 do in NumPy */
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t row = starts[i], end = i + 1 < count ? starts[i + 1] : rows;
        if (row < 0 || row >= end || end > rows) {
            wrong = 1;
            break;
        }
        uint64_t sum = values[row];
        while (++row < end) sum += values[row];
        found[i] = sum;
    }
    Py_END_ALLOW_THREADS
    release(&held);
    if (wrong) {
        PyErr_SetString(PyExc_ValueError, "runs must begin at indices that grow");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* -- memory -------------------------------------------------------------------------------------------------------- */

/* Have the C library keep large blocks that are freed, up to `kept` bytes, and not give each back to the system: the
   next epoch would get the same memory again, page by page. One arena serves all threads, so that what one has freed
   another can use. Returns whether the library can be told. */
static PyObject *keep_memory(PyObject *self, PyObject *kept)
{
    long bytes = PyLong_AsLong(kept);
    if (bytes == -1 && PyErr_Occurred()) return NULL;
#if defined(__GLIBC__)
    if (bytes > INT32_MAX) bytes = INT32_MAX;
    int told = mallopt(M_ARENA_MAX, 1) && mallopt(M_TRIM_THRESHOLD, (int)bytes);
    if (!mallopt(M_MMAP_THRESHOLD, (int)bytes)) mallopt(M_MMAP_THRESHOLD, 32 << 20); /* older ones have a limit */
    return PyBool_FromLong(told);
#else
    Py_RETURN_FALSE;
#endif
}

static PyObject *give_back_memory(PyObject *self, PyObject *nothing)
{
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"argsort", (PyCFunction)(void (*)(void))argsort, METH_FASTCALL, "argsort(words, order)"},
    {"lower_bounds", (PyCFunction)(void (*)(void))lower_bounds, METH_FASTCALL, "lower_bounds(sorted, wanted, found)"},
    {"runs_of", (PyCFunction)(void (*)(void))runs_of, METH_FASTCALL, "runs_of(sorted, wanted, found) -> count"},
    {"spans", (PyCFunction)(void (*)(void))spans, METH_FASTCALL, "spans(sorted, wanted, found)"},
    {"mix", (PyCFunction)(void (*)(void))mix, METH_FASTCALL, "mix(words)"},
    {"gather", (PyCFunction)(void (*)(void))gather, METH_FASTCALL, "gather(values, indices, found)"},
    {"run_sums", (PyCFunction)(void (*)(void))run_sums, METH_FASTCALL, "run_sums(values, starts, found)"},
    {"keep_memory", keep_memory, METH_O, "keep_memory(bytes) -> whether the C library can be told"},
    {"give_back_memory", give_back_memory, METH_NOARGS, "give_back_memory()"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_inner_loops", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__inner_loops(void) { return PyModuleDef_Init(&module); }
