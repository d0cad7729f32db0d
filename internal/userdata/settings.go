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

// settingsFile is where ComfyUI keeps a user's settings: among the user's
// files.
const settingsFile Path = "comfy.settings.json"

// maxSettings bounds a settings file, in bytes.
const maxSettings = 16 << 20

// Settings are the user's settings, empty where there are none.
func (f Folder) Settings(ctx context.Context) (*pyjson.Object, error) {
	return f.readObject(ctx, settingsFile)
}

// ChangeSettings reads the settings, lets change alter them, and stores them.
func (f Folder) ChangeSettings(ctx context.Context, change func(*pyjson.Object)) error {
	defer f.lock()()
	settings, err := f.readObject(ctx, settingsFile)
	if err != nil {
		return err
	}
	change(settings)
	return f.writeObject(ctx, settingsFile, settings)
}

// readObject reads a JSON object. A missing or broken file is an empty one, as
// for ComfyUI: a damaged file must not lock its user out.
func (f Folder) readObject(ctx context.Context, p Path) (*pyjson.Object, error) {
	empty := pyjson.NewObject()
	body, err := f.Open(ctx, p, 0, -1)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return nil, fmt.Errorf("userdata: %w", err)
	}
	defer body.Close()
	raw, err := io.ReadAll(io.LimitReader(body, maxSettings))
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

func (f Folder) writeObject(ctx context.Context, p Path, o *pyjson.Object) error {
	raw := pyjson.Marshal(o)
	if len(raw) >= maxSettings {
		return ErrTooLarge
	}
	_, err := f.write(ctx, p, bytes.NewReader(raw), 0)
	return err
}

// ErrTooLarge says that settings would not fit their file any more.
var ErrTooLarge = errors.New("userdata: settings are too large")
