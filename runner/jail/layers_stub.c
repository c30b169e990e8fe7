#include "layers.h"
#include <errno.h>
#include <stdlib.h>
struct layers { int x; };
struct layers *layers_new(const struct layers_config *cfg, struct err *err) { (void)cfg;(void)err; return calloc(1,sizeof(struct layers)); }
void layers_free(struct layers *l) { free(l); }
const char *layers_snapshots_missing(const struct layers *l) { (void)l; return "no"; }
const char *layers_files_missing(const struct layers *l) { (void)l; return "no"; }
struct layers_volume *layers_open(struct layers *l, const struct layers_jail *j, struct err *err) { (void)l;(void)j; (void)err_set(err, ERR_STATE, ENOTSUP, "no layers"); return NULL; }
void layers_close(struct layers_volume *v) { (void)v; }
void layers_prepare(struct layers_volume *v, enum wire_disk d, const char *f, layers_done *done, void *arg) { (void)v;(void)d;(void)f;(void)done;(void)arg; }
void layers_snapshot(struct layers_volume *v, const char *key, bool quiet, layers_done *done, void *arg) { (void)v;(void)key;(void)quiet;(void)done;(void)arg; }
void layers_restore(struct layers_volume *v, const char *key, layers_done *done, void *arg) { (void)v;(void)key;(void)done;(void)arg; }
int layers_upper(const struct layers_volume *v, struct err *err) { (void)v;(void)err; return -1; }
int layers_use(const struct layers_volume *v, uint64_t *b, uint64_t *i, bool *f) { (void)v; *b=*i=0; *f=false; return 0; }
bool layers_find(const struct layers *l, const char *key, uint64_t *b, uint64_t *f) { (void)l;(void)key;(void)b;(void)f; return false; }
void layers_drop(struct layers *l, const char *key) { (void)l;(void)key; }
void layers_each(const struct layers *l, void (*fn)(void *arg, const char *key, uint64_t bytes, uint64_t files), void *arg) { (void)l;(void)fn;(void)arg; }
