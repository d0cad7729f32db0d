package sim

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// folders is the disk of an instance.
type folders struct {
	base string
	feat features
	// dated puts outputs into a folder of the day.
	dated bool
}

// kinds are the folders a file reference can name.
var kinds = [...]string{"input", "output", "temp"}

func newFolders(base string, feat features) (*folders, error) {
	base, err := filepath.Abs(base)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	f := &folders{base: base, feat: feat}
	for _, kind := range append([]string{"user/default"}, kinds[:]...) {
		if err := os.MkdirAll(filepath.Join(base, kind), 0o755); err != nil {
			return nil, fmt.Errorf("sim: %w", err)
		}
	}
	return f, nil
}

// root returns the folder of a kind, "" for an unknown kind.
func (f *folders) root(kind string) string {
	for _, k := range kinds {
		if k == kind {
			return filepath.Join(f.base, k)
		}
	}
	return ""
}

func (f *folders) clearTemp() error {
	temp := f.root("temp")
	if err := os.RemoveAll(temp); err != nil {
		return err
	}
	return os.MkdirAll(temp, 0o755)
}

// within joins a relative path to a root and reports whether the result stays
// inside it.
func within(root, rel string) (string, bool) {
	full := filepath.Clean(rel)
	if !filepath.IsAbs(rel) {
		full = filepath.Join(root, rel)
	}
	return full, full == root || strings.HasPrefix(full, root+string(filepath.Separator))
}

// annotated splits "a.png [output]" into name and kind. kind is "" without an
// annotation. It cuts a fixed number of characters, whatever comes before the
// bracket.
func annotated(name string) (string, string) {
	for _, kind := range kinds {
		suffix := "[" + kind + "]"
		if strings.HasSuffix(name, suffix) {
			return name[:max(0, len(name)-len(suffix)-1)], kind
		}
	}
	return name, ""
}

// inputFile returns the path that a node input such as LoadImage.image refers to.
func (f *folders) inputFile(value string) (string, error) {
	name, kind := annotated(value)
	kind = cmp.Or(kind, "input")
	full, inside := within(f.root(kind), name)
	if f.feat.contained && !inside {
		return "", os.ErrPermission
	}
	return full, nil
}

// inputExists reports whether the file named by a node input exists.
func (f *folders) inputExists(value string) bool {
	full, err := f.inputFile(value)
	if err != nil {
		return false
	}
	_, err = os.Stat(full)
	return err == nil
}

// imageFiles lists the pictures in the root of the input folder.
func (f *folders) imageFiles() []string {
	entries, err := os.ReadDir(f.root("input"))
	if err != nil {
		return nil
	}
	names := []string{}
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasPrefix(mimeByName(e.Name()), "image/") {
			names = append(names, e.Name())
		}
	}
	return names
}

// target is the place of the next pictures with a prefix.
type target struct {
	dir       string
	name      string
	subfolder string
	counter   int
}

var counterText = regexp.MustCompile(`^(\d+)_`)

// next finds the highest number used with a prefix. It looks on disk each time.
func (f *folders) next(kind, prefix string, width, height int) (target, *exception) {
	prefix = strings.NewReplacer("%width%", strconv.Itoa(width), "%height%", strconv.Itoa(height)).Replace(prefix)
	prefix = expandTime(prefix)
	if f.dated && kind == "output" {
		prefix = filepath.Join(expandTime("%year%-%month%-%day%"), prefix)
	}
	root := f.root(kind)
	clean := filepath.Clean(prefix)
	t := target{name: filepath.Base(clean), subfolder: filepath.Dir(clean)}
	if t.subfolder == "." {
		t.subfolder = ""
	}
	dir, inside := within(root, t.subfolder)
	if !inside {
		text := fmt.Sprintf("**** ERROR: Saving image outside the output folder is not allowed.\n full_output_folder: %s\n         output_dir: %s", dir, root)
		if !f.feat.contained {
			text += "\n         commonpath: " + filepath.Dir(root)
		}
		return t, &exception{kind: "Exception", message: text}
	}
	t.dir = dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return t, raise("OSError", "%v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return t, raise("OSError", "%v", err)
	}
	t.counter = 1
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), t.name+"_")
		if !ok {
			continue
		}
		if m := counterText.FindStringSubmatch(rest); m != nil {
			if n, err := strconv.Atoi(m[1]); err == nil && n >= t.counter {
				t.counter = n + 1
			}
		}
	}
	return t, nil
}
