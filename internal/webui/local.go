package webui

import (
	"net/http"
	"time"
)

// Local says which content a file in a folder of the operator has.
type Local struct {
	// Path is the whole path of the file.
	Path string
	// Stamp is different for other content; it becomes a part of the ETag.
	Stamp    string
	Type     string
	Modified time.Time
	Size     int64
}

// Local is a file in a folder of the operator. It is read where it is not kept
// with this content. nil is for one that gains nothing by being kept.
func (f *Files) Local(l Local, read func() ([]byte, error)) (*File, error) {
	if l.Size > maxFile || !compressible(l.Type, l.Size) {
		return nil, nil
	}
	k := key{path: l.Path}
	if file := f.kept(k); file != nil && file.hash == l.Stamp {
		return file, nil
	}
	body, err := read()
	if err != nil || int64(len(body)) != l.Size {
		return nil, err // it is being written
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.replace(k, &File{
		key: k, hash: l.Stamp, modified: l.Modified, plain: form{body: body}, header: http.Header{"Content-Type": {l.Type}},
	}), nil
}

func (f *Files) kept(k key) *File {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.get(k)
}
