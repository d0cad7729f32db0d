package catalog

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"weak"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Library parses the bodies of /object_info and keeps equal parts once: a fleet of
// a hundred instances mostly serves the same few bodies, and different bodies
// differ only in the options of a few classes. The garbage collector frees what no
// [Info] uses any more; there is nothing to close. A Library is safe for concurrent
// use.
type Library struct {
	mu      sync.Mutex
	infos   map[digest]weak.Pointer[Info]
	classes map[digest]weak.Pointer[class]
}

// Limits on what an instance, which may belong to anybody, can describe. A loader
// that lists fifty thousand files takes 5 MB, and the largest installations have
// some ten thousand classes.
const (
	maxClasses = 50_000
	maxClass   = 16 << 20
)

// ErrUnknown means that no instance has said yet what it can run, and one is about to.
var ErrUnknown = errors.New("catalog: it is not known yet what the instances can run")

// errMalformed means that bytes are not valid JSON.
var errMalformed = errors.New("catalog: malformed JSON")

// NewLibrary returns an empty library.
func NewLibrary() *Library {
	return &Library{infos: map[digest]weak.Pointer[Info]{}, classes: map[digest]weak.Pointer[class]{}}
}

// Parse parses a single body, see [Library.Parse].
func Parse(objectInfo []byte) (*Info, error) { return NewLibrary().Parse(objectInfo) }

// Parse parses the body of GET /object_info. NaN and Infinity are accepted. A class
// whose description cannot be parsed is skipped, see [Info.Skipped]; the error
// concerns the body as a whole. The body is not retained.
//
// Classes beyond maxClasses, and those larger than maxClass, are skipped.
func (l *Library) Parse(objectInfo []byte) (*Info, error) {
	sum := digest(sha256.Sum256(objectInfo))
	l.mu.Lock()
	known := l.infos[sum].Value()
	l.mu.Unlock()
	if known != nil {
		return known, nil
	}
	info := &Info{sum: sum, classes: map[string]*class{}}
	s := pyjson.Scanner{Data: objectInfo}
	ok := s.Object(func(name string) bool {
		value, ok := s.Value()
		if !ok {
			return false
		}
		if len(info.names) >= maxClasses || len(value.Of(objectInfo)) > maxClass {
			info.skipped = append(info.skipped[:min(len(info.skipped), maxClasses)], name)
			return true
		}
		c, err := l.class(name, value.Of(objectInfo))
		if err != nil {
			// ComfyUI skips such a class, too. The instance keeps its other
			// classes; only prompts that use this one are refused.
			info.skipped = append(info.skipped, name)
			return true
		}
		if _, again := info.classes[name]; !again {
			info.names = append(info.names, name)
		}
		info.classes[name] = c
		return true
	})
	if !ok || !s.End() {
		return nil, fmt.Errorf("object_info: %w at offset %d", errMalformed, s.At)
	}
	return l.keep(info), nil
}

// keep registers the info, unless another goroutine has just parsed the same.
func (l *Library) keep(info *Info) *Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.infos[info.sum].Value(); known != nil {
		return known
	}
	l.infos[info.sum] = weak.Make(info)
	runtime.AddCleanup(info, func(sum digest) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.infos[sum].Value() == nil {
			delete(l.infos, sum)
		}
	}, info.sum)
	return info
}

// class returns the class described by raw, which is parsed only the first time.
func (l *Library) class(name string, raw []byte) (*class, error) {
	h := sha256.New()
	h.Write([]byte(name))
	h.Write([]byte{0})
	h.Write(raw)
	sum := digest(h.Sum(nil))
	l.mu.Lock()
	known := l.classes[sum].Value()
	l.mu.Unlock()
	if known != nil {
		return known, nil
	}
	// Copied, because a slice of the body would keep all of it in memory.
	c, err := parseClass(name, append([]byte(nil), raw...), sum)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.classes[sum].Value(); known != nil {
		return known, nil
	}
	l.classes[sum] = weak.Make(c)
	runtime.AddCleanup(c, func(sum digest) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.classes[sum].Value() == nil {
			delete(l.classes, sum)
		}
	}, sum)
	return c, nil
}
