package request

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	_ "image/gif"  // its header is read
	_ "image/jpeg" // its header is read
	_ "image/png"  // its header is read
	"io"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	_ "golang.org/x/image/webp" // its header is read

	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// linkLife is how long a link to a file works.
const linkLife = 24 * time.Hour

// headSize is how much of a picture is read for its header, in bytes.
const headSize = 64 << 10

// previewOf wraps a preview of a run.
func (w *wording) previewOf(picture []byte) platform.Attachment {
	return platform.Attachment{
		Name: "preview.jpg", Media: platform.Photo, Size: int64(len(picture)), Spoiler: w.rec.Cover,
		Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(picture)), nil },
	}
}

func extension(name string) string { return strings.ToLower(path.Ext(name)) }

func isPicture(name string) bool {
	return slices.Contains([]string{".png", ".jpg", ".jpeg", ".webp", ".bmp"}, extension(name))
}

// mediaOf returns how to show a file, by its name.
func mediaOf(name string, limits platform.Limits) platform.Media {
	switch ending := extension(name); ending {
	case ".png", ".jpg", ".jpeg", ".webp":
		return platform.Photo
	case ".mp4", ".mov", ".m4v", ".webm", ".mkv":
		if limits.Videos == nil || slices.Contains(limits.Videos, ending) {
			return platform.Video
		}
	case ".gif":
		return platform.Animation
	case ".mp3", ".m4a", ".flac", ".ogg", ".opus", ".wav":
		return platform.Audio
	}
	return platform.Document
}

// outputFiles are the files that a request has made: how they may be shown, and how they
// are read.
type outputFiles struct {
	hub      *hubapi.Client
	logger   *slog.Logger
	links    string
	command  func(name string) *workflow.Command
	moderate Judge
	sheets   chan struct{}
	platform platform.Platform
	rec      *Record
	entry    *entry
	bare     bool // it is shown in a private chat, without its group's spoiler
}

// inspect determines an output's size and whether it can be shown.
func (fs *outputFiles) inspect(ctx context.Context, out *Output) error {
	body, size, err := fs.hub.View(ctx, fs.rec.Tenant(), out.Ref)
	if err != nil {
		return err
	}
	defer body.Close()
	limits := fs.platform.Limits()
	out.Size, out.Media = max(size, 0), mediaOf(out.Ref.Filename, limits)
	if out.Media == platform.Photo {
		head, err := io.ReadAll(io.LimitReader(body, headSize))
		if err != nil {
			return fmt.Errorf("reading the header of an output: %w", err)
		}
		if out.Size > limits.Photo || !showable(head, limits) {
			out.Media = platform.Document
		}
	}
	if out.Media == platform.Video && out.Size <= limits.File {
		found := filmOf(body)
		out.Width, out.Height, out.Length = found.Width, found.Height, found.Length
	}
	if fs.rec.Args.AsFile {
		out.Media = platform.Document
	}
	if out.Size > limits.File {
		out.State = TooBig
	}
	return nil
}

// showable reports whether a picture loses nothing visible when it is sent as a photo.
func showable(head []byte, limits platform.Limits) bool {
	config, format, err := image.DecodeConfig(bytes.NewReader(head))
	if err != nil || limits.Recompresses && (transparent(head, format) || animated(head, format)) {
		return false
	}
	w, h := config.Width, config.Height
	return w > 0 && h > 0 && (limits.Sides == 0 || w+h <= limits.Sides) && (limits.Shape == 0 || w <= limits.Shape*h && h <= limits.Shape*w)
}

func transparent(head []byte, format string) bool {
	// The fourth chunk byte of IHDR: 4 and 6 are the colour types with alpha.
	const colorType = 25
	return format == "png" && len(head) > colorType && (head[colorType] == 4 || head[colorType] == 6) ||
		format == "webp" && bytes.Contains(head, []byte("ALPH"))
}

func animated(head []byte, format string) bool {
	return format == "png" && bytes.Contains(head, []byte("acTL")) || format == "webp" && bytes.Contains(head, []byte("ANIM"))
}

// attachment reopens an output for each attempt to send it.
func (fs *outputFiles) attachment(out Output) platform.Attachment {
	tenant := fs.rec.Tenant()
	return platform.Attachment{
		Name: path.Base(out.Ref.Filename), Media: out.Media, Size: out.Size, Width: out.Width, Height: out.Height, Length: out.Length, Spoiler: out.Verdict == Covered || fs.rec.Cover && !fs.bare,
		Link: func(ctx context.Context) (string, error) { return fs.link(ctx, out) },
		Open: func(ctx context.Context) (io.ReadCloser, error) {
			body, _, err := fs.hub.View(ctx, tenant, out.Ref)
			return body, err
		},
	}
}

// link returns a link to an output, "" if there is none.
func (fs *outputFiles) link(ctx context.Context, out Output) (string, error) {
	if fs.links == "" {
		return "", nil
	}
	path, err := fs.hub.Link(ctx, fs.rec.Tenant(), out.Ref, linkLife)
	if err != nil {
		return "", fmt.Errorf("a link to an output: %w", err)
	}
	return fs.links + path, nil
}

// linkBig gets links to the files that are too large to send. If the hub makes none, the
// rest is sent anyway.
func (fs *outputFiles) linkBig(ctx context.Context) error {
	if fs.links == "" {
		return nil
	}
	fresh := false
	for i := range fs.rec.Outputs {
		out := &fs.rec.Outputs[i]
		if out.State != TooBig || out.Link != "" {
			continue
		}
		link, err := fs.link(ctx, *out)
		if errors.Is(err, hubapi.ErrUnavailable) {
			return err
		}
		if err != nil {
			fs.logger.Warn("the hub gives no link to a large file", "request", fs.rec.ID, "error", err)
		}
		out.Link, fresh = link, true
	}
	if !fresh {
		return nil
	}
	return fs.entry.save(ctx)
}
