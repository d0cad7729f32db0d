package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// Instance is the ComfyUI server that a job runs on, as far as its files are concerned: a
// [comfyui.Client].
type Instance interface {
	// Stat asks whether the file is there.
	Stat(ctx context.Context, ref job.FileRef) (info comfyui.FileInfo, found bool, err error)
	// View reads a file.
	View(ctx context.Context, ref job.FileRef, header http.Header) (*http.Response, error)
	// Upload stores a file and returns the name it got.
	Upload(ctx context.Context, ref job.FileRef, overwrite bool, body io.Reader, size int64) (job.FileRef, error)
	// Put sends a body to a route of custom nodes.
	Put(ctx context.Context, path, contentType string, body io.Reader, size int64) error
}

// Target is an instance with its name and boot.
type Target struct {
	Name, Boot string
	Instance   Instance
}

// Rewrite says that an input has another name on the instance.
type Rewrite struct {
	// From is the input as the graph names it.
	From job.FileRef
	// To is where it is, always of type input.
	To job.FileRef
}

// Literal writes the new value in the form of the old one: with the type in brackets if the old one
// had it.
func (r Rewrite) Literal(old string) string {
	_, annotated := job.SplitAnnotation(old)
	return r.To.Value(annotated != "")
}

// Pusher brings the inputs of a job to the instance that will run it.
type Pusher struct {
	store     *Store
	collector *Collector
	apart     bool
}

// NewPusher makes a Pusher; the collector fetches pinned outputs that have not been copied yet. apart
// puts every input into the folder of its content, so that nobody who does not have the content can
// name it.
func NewPusher(store *Store, collector *Collector, apart bool) *Pusher {
	return &Pusher{store, collector, apart}
}

// hubFolder is the hub's own folder among the inputs of an instance. Whatever is in it was put
// there by a hub.
const hubFolder = "comfyhub"

// Push makes sure that the instance has every pinned input and returns those that have another name
// there. An input keeps its name if that is free or has the same bytes; otherwise, and always if it
// is an output or a temporary file, it goes into a folder named after its content. Nothing is sent
// twice, and no file is replaced that a hub did not put there.
//
// ErrGone says that a pinned file is nowhere to be found, so that the job cannot run anywhere;
// other errors are the instance's, the storage's or Redis's.
func (p *Pusher) Push(ctx context.Context, tenant string, pins Pins, to Target) ([]Rewrite, error) {
	var rewrites []Rewrite
	for _, pin := range pins {
		lies, err := p.push(ctx, tenant, pin, to)
		if err != nil {
			return nil, err
		}
		if lies != pin.Ref {
			rewrites = append(rewrites, Rewrite{From: pin.Ref, To: lies})
		}
	}
	return rewrites, nil
}

// push brings one input and returns where it is; the Ref itself if it kept its name.
func (p *Pusher) push(ctx context.Context, tenant string, pin Pin, to Target) (job.FileRef, error) {
	pin, err := p.complete(ctx, tenant, pin)
	if err != nil {
		return job.FileRef{}, err
	}
	own, ok := placeOf(pin.Ref)
	if !ok {
		return job.FileRef{}, ErrGone
	}
	d := delivery{
		store: p.store, placed: NewPlaced(p.store.db), pin: pin, to: to, patience: p.collector.patience,
		ext: strings.ToLower(path.Ext(own.name)),
	}
	if p.apart {
		d.scope = tenant
	}
	if !p.apart && own.typ == job.TypeInput && !strings.HasPrefix(own.dir+"/", hubFolder+"/") {
		kept, err := d.keepName(ctx, own)
		if err != nil {
			return job.FileRef{}, err
		}
		if kept {
			return pin.Ref, nil
		}
	}
	byContent := place{typ: job.TypeInput, dir: hubFolder + "/" + pin.SHA256[:32], name: own.name}
	lies, err := d.putByContent(ctx, byContent)
	if err != nil {
		return job.FileRef{}, err
	}
	if lies == own {
		return pin.Ref, nil
	}
	return lies.ref(), nil
}

// complete finds the bytes of a pin that had none when it was made.
func (p *Pusher) complete(ctx context.Context, tenant string, pin Pin) (Pin, error) {
	if pin.Key == "" {
		e, err := p.collector.Collect(ctx, tenant, pin.Ref)
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrChanged) {
			return Pin{}, fmt.Errorf("%w: %w", ErrGone, err)
		}
		if err != nil {
			return Pin{}, err
		}
		if e.Source == nil || pin.Source == nil || *e.Source != *pin.Source {
			// The name now means another file.
			return Pin{}, ErrGone
		}
		pin.Key, pin.Size, pin.SHA256 = e.Key, e.Size, e.SHA256
	}
	if len(pin.SHA256) != sha256.Size*2 {
		return Pin{}, fmt.Errorf("files: pin without a hash")
	}
	return pin, nil
}

// delivery is one input on its way to one instance.
type delivery struct {
	store  *Store
	placed Placed
	pin    Pin
	to     Target
	// patience is with the instance.
	patience Patience
	// ext and scope say which other files with the same content may stand in for it: those of its
	// kind, and, where inputs are kept apart, its tenant's.
	ext, scope string
}

// keepName tries to have the input under its own name. The same bytes under another name are no
// substitute: the instance would take a node from its cache that ComfyUI would execute.
func (d delivery) keepName(ctx context.Context, at place) (bool, error) {
	info, found, err := d.to.Instance.Stat(ctx, at.ref())
	if err != nil {
		return false, err
	}
	if found {
		return d.same(ctx, at, info)
	}
	return d.send(ctx, at, false)
}

// putByContent makes sure that the input is in the folder of its content, or in another place that
// already has its bytes.
func (d delivery) putByContent(ctx context.Context, at place) (place, error) {
	info, found, err := d.to.Instance.Stat(ctx, at.ref())
	if err != nil {
		return place{}, err
	}
	if found {
		if same, err := d.same(ctx, at, info); err != nil || same {
			return at, err
		}
	}
	if lies, ok, err := d.elsewhere(ctx); err != nil || ok {
		return lies, err
	}
	// What is there is an upload of ours that broke off.
	done, err := d.send(ctx, at, found)
	if err == nil && !done {
		err = fmt.Errorf("files: the instance gave an input another name")
	}
	return at, err
}

// elsewhere finds the place on the instance where the same bytes were sent under another name.
func (d delivery) elsewhere(ctx context.Context) (place, bool, error) {
	at, ok, err := d.placed.recallContent(ctx, d.to.Name, d.content())
	if err != nil || !ok {
		return place{}, false, err
	}
	info, found, err := d.to.Instance.Stat(ctx, at.ref())
	if err != nil || !found {
		return place{}, false, err
	}
	// It is not read again: sending costs just as much.
	k, ok, err := d.placed.recall(ctx, d.to.Name, at)
	return at, err == nil && ok && d.unchanged(k, info) && k.SHA256 == d.pin.SHA256, err
}

// content returns what stands for the bytes in what is known about an instance.
func (d delivery) content() string { return redis.Pack(d.pin.SHA256, d.ext, d.scope) }

// unchanged reports whether a file is as it was when it was noted. Its ETag tells, or if it has
// none, the instance's boot.
func (d delivery) unchanged(k known, now comfyui.FileInfo) bool {
	if now.ETag == "" {
		return k.ETag == "" && k.Boot == d.to.Boot && k.Size == now.Size
	}
	return k.ETag == now.ETag
}

// same reports whether the file on the instance has the input's bytes. It is read once, and again
// if it has changed.
func (d delivery) same(ctx context.Context, at place, info comfyui.FileInfo) (bool, error) {
	if info.Size >= 0 && info.Size != d.pin.Size {
		return false, nil
	}
	k, ok, err := d.placed.recall(ctx, d.to.Name, at)
	if err != nil {
		return false, err
	}
	if ok && d.unchanged(k, info) {
		return k.SHA256 == d.pin.SHA256, nil
	}
	sum, err := d.hash(ctx, at)
	if err != nil || sum == "" {
		return false, err
	}
	err = d.placed.note(ctx, d.to.Name, at, known{ETag: info.ETag, Size: info.Size, Boot: d.to.Boot, SHA256: sum})
	return sum == d.pin.SHA256, err
}

// hash reads the file on the instance; "" says that it is of another size, or has just been changed.
func (d delivery) hash(ctx context.Context, at place) (string, error) {
	view := func(ctx context.Context, src Source, header http.Header) (*http.Response, error) {
		return d.to.Instance.View(ctx, src.Ref(), header)
	}
	ref := at.ref()
	from, err := startDownload(ctx, view, Source{Type: ref.Type, Subfolder: ref.Subfolder, Filename: ref.Filename}, d.patience)
	if errors.Is(err, ErrGone) {
		return "", nil // it was deleted since the look
	}
	if err != nil {
		return "", err
	}
	defer from.drop()
	hash := sha256.New()
	n, err := io.Copy(hash, io.LimitReader(from, d.pin.Size+1))
	switch {
	case errors.Is(err, ErrGone), errors.Is(err, ErrChanged), err == nil && n != d.pin.Size:
		return "", nil
	case err != nil: // patience with it has ended
		return "", fmt.Errorf("files: compare an input: %w: %w", comfyui.ErrUnreachable, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// storedReader tells a failure of the storage apart from one of the instance that is sent what it
// reads.
type storedReader struct {
	io.Reader
	ctx     context.Context
	storage *Storage
	key     string
}

func (s storedReader) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = s.storage.backend.failed(s.ctx, "read", s.key, err)
	}
	return n, err
}

// send uploads the input; it returns false if the instance gave it another name because somebody
// was faster with another file.
func (d delivery) send(ctx context.Context, at place, overwrite bool) (bool, error) {
	body, err := d.store.storage.OpenSized(ctx, d.pin.Key, d.pin.Size, 0, -1)
	if err != nil {
		return false, err
	}
	defer body.Close()
	var got job.FileRef
	err = d.patience.feed(ctx, storedReader{body, ctx, d.store.storage, d.pin.Key}, func(ctx context.Context, body io.Reader) (err error) {
		got, err = d.to.Instance.Upload(ctx, at.ref(), overwrite, body, d.pin.Size)
		return err
	})
	if err != nil {
		return false, err
	}
	d.store.pushed(d.pin.Size)
	if p, ok := placeOf(got); !ok || p != at {
		return false, nil
	}
	info, found, err := d.to.Instance.Stat(ctx, at.ref())
	if err != nil {
		return false, err
	}
	if !found || (info.Size >= 0 && info.Size != d.pin.Size) {
		return false, fmt.Errorf("files: the instance did not keep an input")
	}
	if err := d.placed.note(ctx, d.to.Name, at, known{ETag: info.ETag, Size: info.Size, Boot: d.to.Boot, SHA256: d.pin.SHA256}); err != nil {
		return false, err
	}
	return true, d.placed.noteContent(ctx, d.to.Name, d.content(), at)
}
