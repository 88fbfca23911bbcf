package cri

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hostImage is the one image that is always there: the host's file system and no program.
const hostImage = "host"

const digestPrefix = "sha256:"

// Images is the kubelet's image service: a file says which program an image stands for.
type Images struct {
	// File is JSON, image name to path. It is read anew each time, because it grows.
	File string
	// Root is where containers write, for the usage of that file system.
	Root string
}

// image is what a container starts from. The program is empty for the host's.
type image struct {
	name, id, program string
}

func (i *Images) find(name string) (*image, error) {
	if strings.HasPrefix(name, digestPrefix) {
		return i.findByID(name)
	}
	if repository(name) == hostImage {
		return &image{name: name, id: digest(hostImage)}, nil
	}
	loaded, err := i.read()
	if err != nil {
		return nil, err
	}
	for _, spelling := range []string{name, strings.TrimSuffix(name, ":latest"), name + ":latest"} {
		program, ok := loaded[spelling]
		if !ok {
			continue
		}
		st, err := os.Stat(program)
		if err != nil {
			return nil, fmt.Errorf("the program of image %s is gone from %s: build it and run: cluster load %s=PATH", name, program, name)
		}
		id := digest(fmt.Sprint(program, st.Size(), st.ModTime().UnixNano()))
		return &image{name: name, id: id, program: program}, nil
	}
	return nil, fmt.Errorf("image %s was not loaded into this cluster; run: cluster load %s=PATH", name, name)
}

func (i *Images) findByID(id string) (*image, error) {
	loaded, err := i.read()
	if err != nil {
		return nil, err
	}
	for _, name := range append(slices.Collect(maps.Keys(loaded)), hostImage) {
		if found, err := i.find(name); err == nil && found.id == id {
			return found, nil
		}
	}
	return nil, fmt.Errorf("no loaded image has the id %s", id)
}

func (i *Images) read() (map[string]string, error) {
	raw, err := os.ReadFile(i.File)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the list of images: %w", err)
	}
	var loaded map[string]string
	if err := json.Unmarshal(raw, &loaded); err != nil {
		return nil, fmt.Errorf("the list of images %s is not JSON of names and paths: %w", i.File, err)
	}
	return loaded, nil
}

// repository is an image's name without tag and digest.
func repository(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		name = name[:colon]
	}
	return name
}

func digest(of string) string { return fmt.Sprintf(digestPrefix+"%x", sha256.Sum256([]byte(of))) }

func (i *image) describe() *cri.Image {
	return &cri.Image{Id: i.id, RepoTags: []string{i.name}, Size: 1, Spec: &cri.ImageSpec{Image: i.name}}
}

// ListImages lists what was loaded.
func (i *Images) ListImages(context.Context, *cri.ImageFilter) ([]*cri.Image, error) {
	loaded, err := i.read()
	if err != nil {
		return nil, err
	}
	var list []*cri.Image
	for name := range loaded {
		if found, err := i.find(name); err == nil {
			list = append(list, found.describe())
		}
	}
	return list, nil
}

// ImageStatus says whether an image is there; an image that is not has no status and no error.
func (i *Images) ImageStatus(_ context.Context, spec *cri.ImageSpec, _ bool) (*cri.ImageStatusResponse, error) {
	found, err := i.find(spec.GetImage())
	if err != nil {
		return &cri.ImageStatusResponse{}, nil
	}
	return &cri.ImageStatusResponse{Image: found.describe()}, nil
}

// PullImage can only find what was loaded.
func (i *Images) PullImage(_ context.Context, spec *cri.ImageSpec, _ *cri.AuthConfig, _ *cri.PodSandboxConfig) (string, error) {
	found, err := i.find(spec.GetImage())
	if err != nil {
		return "", err
	}
	return found.id, nil
}

// RemoveImage leaves the programs alone: they are not the node's.
func (i *Images) RemoveImage(context.Context, *cri.ImageSpec) error { return nil }

// ImageFsInfo is about the file system that containers write to.
func (i *Images) ImageFsInfo(context.Context) (*cri.ImageFsInfoResponse, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(i.Root, &st); err != nil {
		return nil, fmt.Errorf("look at the file system of %s: %w", i.Root, err)
	}
	usage := []*cri.FilesystemUsage{{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &cri.FilesystemIdentifier{Mountpoint: i.Root},
		UsedBytes:  &cri.UInt64Value{Value: (st.Blocks - st.Bfree) * uint64(st.Bsize)},
		InodesUsed: &cri.UInt64Value{Value: st.Files - st.Ffree},
	}}
	return &cri.ImageFsInfoResponse{ImageFilesystems: usage, ContainerFilesystems: usage}, nil
}
