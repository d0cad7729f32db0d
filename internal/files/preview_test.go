package files

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/picture"
)

// claiming returns a PNG whose header claims another size.
func claiming(t testing.TB, width, height uint32) string {
	t.Helper()
	data := painted(t, 1, 1, color.NRGBA{}, 0)
	binary.BigEndian.PutUint32(data[16:], width)
	binary.BigEndian.PutUint32(data[20:], height)
	binary.BigEndian.PutUint32(data[29:], crc32.ChecksumIEEE(data[12:29]))
	return string(data)
}

// askAs sends a GET /view as a caller.
func askAs(ctx context.Context, v *View, caller, query string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	v.ServeView(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, "/view?"+query, nil), tenant, caller)
	return rec
}

// An instance is asked only for files that it made itself and that a real ComfyUI
// would decode. How many requests one caller may have there at a time is limited.
func TestBombsAreNotForwarded(t *testing.T) {
	s, i := parallelStore(t), newInstance()
	allotted(t, s, i, "bomb.png", claiming(t, 20_000, 10_000))
	allotted(t, s, i, "large.png", claiming(t, 12_000, 10_000))
	s.mustUpload(t, input("large.png"), claiming(t, 12_000, 10_000))
	var asked, atOnce, most atomic.Int64
	v := NewView(s, i.fetch, ViewOptions{Preview: func(_ context.Context, src Source, _ url.Values) (*http.Response, error) {
		asked.Add(1)
		if now := atOnce.Add(1); now > most.Load() {
			most.Store(now)
		}
		defer atOnce.Add(-1)
		rec := httptest.NewRecorder()
		rec.Header().Set("Content-Type", "image/webp")
		_, _ = rec.WriteString(src.Filename)
		return rec.Result(), nil
	}})
	for _, query := range []string{"filename=bomb.png&preview=webp", "filename=bomb.png&channel=a", "filename=large.png&type=input&preview=jpeg"} {
		require.Equal(t, http.StatusInternalServerError, askAs(t.Context(), v, "a", query).Code, query)
	}
	require.Zero(t, asked.Load())
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			rec := askAs(t.Context(), v, "a", "filename=large.png&preview=webp")
			require.Equal(t, "large.png", rec.Body.String())
		})
	}
	all.Wait()
	require.Equal(t, int64(20), asked.Load())
	require.LessOrEqual(t, most.Load(), int64(2), "half of what all callers have")
}

// noise returns a picture that cannot be compressed, and its PNG.
func noise(t *testing.T, width, height int) (*image.NRGBA, string) {
	t.Helper()
	img := image.NewNRGBA(image.Rect(0, 0, width, height))
	r := rand.New(rand.NewPCG(1, 2))
	for n := range img.Pix {
		img.Pix[n] = uint8(r.Uint32())
	}
	var data bytes.Buffer
	require.NoError(t, png.Encode(&data, img))
	return img, data.String()
}

// A large picture is buffered on disk, so that a slow client holds no memory.
func TestLargePicturesAreSentFromTheDisk(t *testing.T) {
	s := parallelStore(t)
	v := NewView(s, newInstance().fetch, ViewOptions{})
	img, data := noise(t, 700, 500)
	s.mustUpload(t, input("noise.png"), data)
	rec := askAs(t.Context(), v, "a", "filename=noise.png&type=input&channel=rgb")
	require.Greater(t, rec.Body.Len(), sketchMemory/4)
	require.Equal(t, strconv.Itoa(rec.Body.Len()), rec.Header().Get("Content-Length"))
	got := must(png.Decode(rec.Body))
	for _, at := range [][2]int{{0, 0}, {350, 250}, {699, 499}} {
		want := img.NRGBAAt(at[0], at[1])
		want.A = 255
		require.Equal(t, want, color.NRGBAModel.Convert(got.At(at[0], at[1])))
	}
	require.Empty(t, must(os.ReadDir(s.spool)))
}

// A caller that asks for too many is told to come back later. Nobody else notices.
func TestTooManyPictures(t *testing.T) {
	s := parallelStore(t)
	s.mustUpload(t, input("small.png"), string(painted(t, 8, 8, color.NRGBA{A: 255}, 0)))
	v := NewView(s, newInstance().fetch, ViewOptions{})
	// Other callers hold all the room for small pictures. An Acquire that gets no turn
	// in this time means that the room is full, not just that the machine is slow.
	var held []func()
	for n := 0; ; n++ {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		release, err := v.gate.Acquire(ctx, fmt.Sprint("holder", n), 1)
		cancel()
		if err != nil {
			break
		}
		held = append(held, release)
	}
	require.NotEmpty(t, held)
	var all sync.WaitGroup
	var busy, served atomic.Int64
	for range 300 {
		all.Go(func() {
			rec := askAs(t.Context(), v, "a", "filename=small.png&type=input&preview=webp")
			switch rec.Code {
			case http.StatusServiceUnavailable:
				require.Equal(t, "2", rec.Header().Get("Retry-After"))
				require.Contains(t, rec.Body.String(), `"type": "too_many_pictures"`)
				busy.Add(1)
			case http.StatusOK:
				served.Add(1)
			}
		})
	}
	require.Eventually(t, func() bool { return busy.Load() == 300-256 }, time.Minute, time.Millisecond)
	for _, release := range held {
		release()
	}
	all.Wait()
	require.Equal(t, int64(256), served.Load())
}

// While one caller's large pictures take all the room for large ones, another caller's small
// picture is made at once. It never waits for any of them to end.
func TestSmallPreviewBesideBombs(t *testing.T) {
	s := parallelStore(t)
	s.mustUpload(t, input("small.png"), string(painted(t, 8, 8, color.NRGBA{A: 255}, 0)))
	s.mustUpload(t, input("large.png"), claiming(t, 9000, 8000))
	v := NewView(s, newInstance().fetch, ViewOptions{})
	ctx, hangUp := context.WithCancel(t.Context())
	large := must(v.gate.Acquire(ctx, "bomber", 600<<20))
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { askAs(ctx, v, "bomber", "filename=large.png&type=input&preview=webp") })
	}
	for _, caller := range []string{"other", "bomber"} {
		require.Equal(t, http.StatusOK, askAs(t.Context(), v, caller, "filename=small.png&type=input&preview=webp").Code)
	}
	hangUp()
	all.Wait() // waiting requests leave the queue when their client is gone
	large()
}

// A mask over a bomb, and a bomb as a mask, cost nothing. They are refused the way ComfyUI refuses
// files it cannot open.
func TestMaskOfABomb(t *testing.T) {
	s := parallelStore(t)
	v := NewView(s, newInstance().fetch, ViewOptions{})
	s.mustUpload(t, input("bomb.png"), claiming(t, 20_000, 10_000))
	s.mustUpload(t, input("large.png"), claiming(t, 12_000, 10_000))
	s.mustUpload(t, input("small.png"), string(painted(t, 8, 8, color.NRGBA{A: 255}, 0)))
	for original, mask := range map[string]string{
		"bomb.png": claiming(t, 20_000, 10_000), "large.png": claiming(t, 12_000, 10_000), "small.png": claiming(t, 12_000, 10_000),
	} {
		e := must(s.Resolve(t.Context(), tenant, input(original)))
		sp := must(newSpool(t.Context(), s.spool, bytes.NewReader([]byte(mask)), 0))
		_, err := NewUploads(s, v, UploadOptions{}).compose(t.Context(), "a", e, sp)
		sp.Close()
		require.Error(t, err, original)
		require.True(t, isPictureError(err), "%s: %v", original, err)
	}
	_, err := v.gate.Acquire(t.Context(), "a", 600<<20)
	require.NoError(t, err, "all room was given back")
}

func isPictureError(err error) bool {
	return errors.Is(err, picture.ErrFormat) || errors.Is(err, picture.ErrBomb) || errors.Is(err, picture.ErrTooLarge)
}

// unread is a client that does not read its answer until it is told to.
type unread struct {
	*httptest.ResponseRecorder

	writes chan<- struct{} // one for each answer that has begun
	reads  <-chan struct{}
	once   sync.Once
}

func (u *unread) Write(p []byte) (int, error) {
	u.once.Do(func() { u.writes <- struct{}{}; <-u.reads })
	return u.ResponseRecorder.Write(p)
}

// What waits for clients that do not read is counted, takes up a small part of the memory for what
// arrives, and is on the disk for the rest.
func TestUnreadAnswers(t *testing.T) {
	s, i := parallelStore(t), newInstance()
	_, data := noise(t, 300, 200)
	s.mustUpload(t, input("noise.png"), data)
	allotted(t, s, i, "x.avif", "not for us")
	v := NewView(s, i.fetch, ViewOptions{Preview: func(context.Context, Source, url.Values) (*http.Response, error) {
		rec := httptest.NewRecorder()
		rec.Header().Set("Content-Type", "image/webp")
		_, _ = rec.WriteString(data)
		return rec.Result(), nil
	}})
	const clients, part = 20, 1 << 20
	for name, query := range map[string]string{
		"a picture":           "filename=noise.png&type=input&channel=rgb",
		"a file":              "filename=noise.png&type=input",
		"made by an instance": "filename=x.avif&preview=webp",
	} {
		b := budget.New()
		b.Resize(budget.Memory, part, 1, nil)
		b.Resize(budget.Disk, 64<<20, 1, nil)
		writes, reads := make(chan struct{}, clients), make(chan struct{})
		answers := make([]*httptest.ResponseRecorder, clients)
		var all sync.WaitGroup
		for n := range answers {
			answers[n] = httptest.NewRecorder()
			all.Go(func() {
				held := b.Open("ann", nil)
				defer held.Close()
				r := httptest.NewRequestWithContext(budget.With(t.Context(), held), http.MethodGet, "/view?"+query, http.NoBody)
				v.ServeView(&unread{ResponseRecorder: answers[n], writes: writes, reads: reads}, r, tenant, "ann")
			})
		}
		for range clients {
			<-writes
		}
		require.Positive(t, b.Used(budget.Memory), name)
		require.LessOrEqual(t, b.Used(budget.Memory), int64(part/4), name)
		close(reads)
		all.Wait()
		for _, answer := range answers {
			require.Equal(t, http.StatusOK, answer.Code, name)
			require.Equal(t, answers[0].Body.Len(), answer.Body.Len(), name)
		}
		require.Zero(t, b.Used(budget.Memory), name)
		require.Zero(t, b.Used(budget.Disk), name)
	}
}
