// Command sbom writes what a Go program was built from as a bill of materials, in the JSON of
// CycloneDX 1.6, from what the Go command notes in each program.
package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM BILL.cdx.json")
		os.Exit(2)
	}
	if err := bills(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// bills writes the bill of a program to a file.
func bills(program, file string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := write(&out, filepath.Base(program), info); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// bill is a bill of materials.
type bill struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

// write writes the bill of a program. The modules come in the order of their paths.
func write(w io.Writer, name string, info *debug.BuildInfo) error {
	b := bill{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Components: []component{}}
	b.Metadata.Component = component{Type: "application", Ref: info.Path, Name: name, Version: info.Main.Version}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	b.Components = append(b.Components, component{
		Type: "library", Ref: "std@" + goVersion, Name: "std", Version: goVersion, PURL: "pkg:golang/std@" + goVersion,
	})
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := component{Type: "library", Ref: m.Path + "@" + m.Version, Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version}
		// go.sum's hash is one over the module's list of files.
		if sum, ok := strings.CutPrefix(m.Sum, "h1:"); ok {
			digest, err := base64.StdEncoding.DecodeString(sum)
			if err != nil {
				return fmt.Errorf("hash of %s: %w", m.Path, err)
			}
			c.Hashes = []hash{{"SHA-256", hex.EncodeToString(digest)}}
		}
		b.Components = append(b.Components, c)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(b)
}
