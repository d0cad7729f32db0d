package webui

import "container/list"

// lru are the files that are kept. Those used longest ago go while there are too
// many. Files.mu guards it.
type lru struct {
	files map[key]*list.Element
	used  list.List // of *File, the one used last first
	size  int64
}

func (l *lru) get(k key) *File {
	e := l.files[k]
	if e == nil {
		return nil
	}
	l.used.MoveToFront(e)
	return e.Value.(*File)
}

func (l *lru) has(file *File) bool {
	e := l.files[file.key]
	return e != nil && e.Value.(*File) == file
}

func (l *lru) add(file *File) {
	l.files[file.key] = l.used.PushFront(file)
	l.size += file.size()
	l.shrink()
}

// pack gives a file its compressed forms.
func (l *lru) pack(file *File, packed []form) {
	before := file.size()
	file.packed.Store(&packed)
	if l.has(file) { // else it was dropped meanwhile, with the size it had before
		l.size += file.size() - before
		l.shrink()
	}
}

func (l *lru) shrink() {
	for len(l.files) > maxFiles || l.size > maxSize {
		l.remove(l.used.Back().Value.(*File))
	}
}

// remove drops a file that is kept; nil is none.
func (l *lru) remove(file *File) {
	if file == nil {
		return
	}
	l.used.Remove(l.files[file.key])
	delete(l.files, file.key)
	l.size -= file.size()
}

func (l *lru) removeAll(which func(key) bool) {
	for k, e := range l.files {
		if which(k) {
			l.remove(e.Value.(*File))
		}
	}
}
