package userdata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// settingsFile is where ComfyUI keeps a user's settings: among the user's files.
const settingsFile Path = "comfy.settings.json"

// maxSettings bounds a settings file, in bytes.
const maxSettings = 16 << 20

// optionsFile is where the hub keeps the options of A1111's API.
const optionsFile Path = "a1111.options.json"

// maxOptions bounds the file of the options, in bytes: every job of the user carries them.
const maxOptions = 64 << 10

// Settings returns the user's settings, empty if there are none.
func (f Folder) Settings(ctx context.Context) (*pyjson.Object, error) {
	return f.readObject(ctx, settingsFile, maxSettings)
}

// ChangeSettings reads the settings, lets change modify them, and stores them.
func (f Folder) ChangeSettings(ctx context.Context, change func(*pyjson.Object)) error {
	return f.changeObject(ctx, settingsFile, maxSettings, change)
}

// Options returns the user's options of A1111's API, empty if there are none.
func (f Folder) Options(ctx context.Context) (*pyjson.Object, error) {
	return f.readObject(ctx, optionsFile, maxOptions)
}

// ChangeOptions reads the options, lets change modify them, and stores them.
func (f Folder) ChangeOptions(ctx context.Context, change func(*pyjson.Object)) error {
	return f.changeObject(ctx, optionsFile, maxOptions, change)
}

func (f Folder) changeObject(ctx context.Context, p Path, limit int, change func(*pyjson.Object)) error {
	leave, err := f.turn(ctx)
	if err != nil {
		return err
	}
	defer leave()
	o, err := f.readObject(ctx, p, limit)
	if err != nil {
		return err
	}
	change(o)
	return f.writeObject(ctx, p, limit, o)
}

// readObject reads a JSON object. As in ComfyUI, a missing or broken file counts as
// empty: a damaged file must not lock out its user.
func (f Folder) readObject(ctx context.Context, p Path, limit int) (*pyjson.Object, error) {
	empty := pyjson.NewObject()
	body, err := f.open(ctx, p)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return nil, fmt.Errorf("userdata: %w", err)
	}
	defer body.Close()
	raw, err := io.ReadAll(io.LimitReader(body, int64(limit)))
	if err != nil {
		return nil, fmt.Errorf("userdata: %w", err)
	}
	v, err := pyjson.Parse(raw)
	if err != nil {
		return empty, nil
	}
	if o, ok := v.(*pyjson.Object); ok {
		return o, nil
	}
	return empty, nil
}

func (f Folder) writeObject(ctx context.Context, p Path, limit int, o *pyjson.Object) error {
	raw := pyjson.Marshal(o)
	if len(raw) >= limit {
		return ErrTooLarge
	}
	_, err := f.write(ctx, p, bytes.NewReader(raw), 0)
	return err
}

// ErrTooLarge means that the settings no longer fit into their file.
var ErrTooLarge = errors.New("userdata: settings are too large")
