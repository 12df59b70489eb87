"""The published data sets: constants, file names, official addresses and checksums.

Checksums are the md5 sums that the authors or torchvision publish for the original files. Where a home server has gone
(MNIST, EMNIST), the long-standing mirror comes first.

Augmentation: flips and colour belong to pictures ("natural") and turn characters into other characters. SVHN shows
digits, yet the published one-shot results on it (FAFI) train with the natural recipe; it stays, to be comparable.
Fashion-MNIST shows clothes, which stay what they are when mirrored.

MNIST and Fashion-MNIST name their files alike, so these are taken only from a folder that names the data set, never
from the data root itself.
"""

import string
from functools import partial

from fedshot.data import cifar, idx, svhn, tiny_imagenet
from fedshot.data.class_names import CIFAR10_NAMES, CIFAR100_NAMES, DIGIT_NAMES, FASHION_NAMES, MERGED_NAMES
from fedshot.data.source import Download, Layout, Source
from fedshot.errors import UserError, unknown

MNIST_HOMES = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)
FASHION_HOMES = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
TORONTO = "https://www.cs.toronto.edu/~kriz/"
STANFORD = "http://ufldl.stanford.edu/housenumbers/"

EMNIST_SPLITS: dict[str, tuple[tuple[str, ...], tuple[int, int]]] = {
    "byclass": ((*DIGIT_NAMES, *string.ascii_uppercase, *string.ascii_lowercase), (697_932, 116_323)),
    "bymerge": (MERGED_NAMES, (697_932, 116_323)),
    "balanced": (MERGED_NAMES, (112_800, 18_800)),
    "letters": (tuple(string.ascii_lowercase), (124_800, 20_800)),
    "digits": (DIGIT_NAMES, (240_000, 40_000)),
    "mnist": (DIGIT_NAMES, (60_000, 10_000)),
}


def _mnist_layouts() -> tuple[Layout, ...]:
    return tuple(
        Layout(tuple(f"{file}{suffix}" for file in idx.MNIST_FILES), partial(idx.read_mnist, suffix=suffix))
        for suffix in (".gz", "")
    )


def _mnist_downloads(homes: tuple[str, ...], sizes: tuple[int, ...], sums: tuple[str, ...]) -> tuple[Download, ...]:
    return tuple(
        Download(f"{file}.gz", tuple(f"{home}{file}.gz" for home in homes), size, md5)
        for file, size, md5 in zip(idx.MNIST_FILES, sizes, sums, strict=True)
    )


def _cifar_layouts(batches: cifar.Batches) -> tuple[Layout, ...]:
    return (
        Layout(batches.files, partial(cifar.read_folder, batches=batches)),
        Layout((batches.archive,), partial(cifar.read_archive, batches=batches)),
    )


def emnist(split: str = "byclass") -> Source:
    """One of the six splits of EMNIST (Cohen et al., 2017); its images carry no writer, unlike those of FEMNIST."""
    if split not in EMNIST_SPLITS:
        raise unknown("split of emnist", split, EMNIST_SPLITS)
    class_names, counts = EMNIST_SPLITS[split]
    files = idx.emnist_files(split)
    return Source(
        name="emnist" if split == "byclass" else f"emnist:{split}",
        title=f"EMNIST {split}",
        class_names=class_names,
        shape=(1, 28, 28),
        counts=counts,
        augmentation="characters",
        folder="emnist",
        places=("", "emnist", "emnist/gzip", "EMNIST/raw"),
        layouts=(
            *(
                Layout(
                    tuple(f"{file}{suffix}" for file in files),
                    partial(idx.read_emnist, split=split, suffix=suffix, classes=len(class_names)),
                )
                for suffix in (".gz", "")
            ),
            Layout((idx.EMNIST_ARCHIVE,), partial(idx.read_emnist_archive, split=split, classes=len(class_names))),
        ),
        downloads=(
            Download(
                idx.EMNIST_ARCHIVE,
                (
                    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
                    "https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip",
                ),
                561_753_746,
                "58c8d27c78d21e728a6bc7b3cc06412e",
            ),
        ),
        note=f"without writers; emnist:SPLIT for {', '.join(split for split in EMNIST_SPLITS if split != 'byclass')}",
    )


SOURCES: dict[str, Source] = {
    "mnist": Source(
        name="mnist",
        title="MNIST",
        class_names=DIGIT_NAMES,
        shape=(1, 28, 28),
        counts=(60_000, 10_000),
        mean=(0.1307,),
        std=(0.3081,),
        augmentation="characters",
        folder="mnist",
        places=("mnist", "MNIST/raw"),
        layouts=_mnist_layouts(),
        downloads=_mnist_downloads(
            MNIST_HOMES,
            (9_912_422, 28_881, 1_648_877, 4_542),
            (
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
        ),
        unpacked_md5={
            "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
            "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
            "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
            "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
        },
        arrays_sha256="06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
    ),
    "fashion_mnist": Source(
        name="fashion_mnist",
        title="Fashion-MNIST",
        class_names=FASHION_NAMES,
        shape=(1, 28, 28),
        counts=(60_000, 10_000),
        mean=(0.2860,),
        std=(0.3530,),
        augmentation="natural",
        folder="fashion_mnist",
        places=("fashion_mnist", "FashionMNIST/raw"),
        layouts=_mnist_layouts(),
        downloads=_mnist_downloads(
            FASHION_HOMES,
            (26_421_880, 29_515, 4_422_102, 5_148),
            (
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "25c81989df183df01b3e8a0aad5dffbe",
                "bef4ecab320f06d8554ea6380940ec79",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
        ),
        arrays_sha256="ca3ab2a37f845e1b8ae23cab1b51749a3011ba3bf1d9016176d75cbaabac376f",
    ),
    "cifar10": Source(
        name="cifar10",
        title="CIFAR-10",
        class_names=CIFAR10_NAMES,
        shape=(3, 32, 32),
        counts=(50_000, 10_000),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        augmentation="natural",
        folder="cifar10",
        places=("", "cifar10"),
        layouts=_cifar_layouts(cifar.CIFAR10),
        downloads=(
            Download(
                cifar.CIFAR10.archive,
                (f"{TORONTO}{cifar.CIFAR10.archive}",),
                170_498_071,
                "c58f30108f718f92721af3b95e74349a",
            ),
        ),
        unpacked_md5={
            "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
            "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
            "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
        },
        arrays_sha256="80387ddb9a0edf3fc4a964ee3770296169bb26a651050df20035579673099660",
    ),
    "cifar100": Source(
        name="cifar100",
        title="CIFAR-100",
        class_names=CIFAR100_NAMES,
        shape=(3, 32, 32),
        counts=(50_000, 10_000),
        mean=(0.5071, 0.4867, 0.4408),
        std=(0.2675, 0.2565, 0.2761),
        augmentation="natural",
        folder="cifar100",
        places=("", "cifar100"),
        layouts=_cifar_layouts(cifar.CIFAR100),
        downloads=(
            Download(
                cifar.CIFAR100.archive,
                (f"{TORONTO}{cifar.CIFAR100.archive}",),
                169_001_437,
                "eb9058c3a382ffc7106e4002c42a8d85",
            ),
        ),
        unpacked_md5={
            "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
            "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
    ),
    "svhn": Source(
        name="svhn",
        title="SVHN, cropped digits",
        class_names=DIGIT_NAMES,
        shape=(3, 32, 32),
        counts=(73_257, 26_032),
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
        augmentation="natural",
        folder="svhn",
        places=("", "svhn"),
        layouts=(Layout(svhn.FILES, svhn.read_svhn),),
        downloads=(
            Download(svhn.FILES[0], (f"{STANFORD}{svhn.FILES[0]}",), 182_040_794, "e26dedcc434d2e4c54c9b2d4a06d8373"),
            Download(svhn.FILES[1], (f"{STANFORD}{svhn.FILES[1]}",), 64_275_384, "eb5a983be6a315427106f1b164d9cef3"),
        ),
        note="for non-commercial use",
    ),
    "tiny_imagenet": Source(
        name="tiny_imagenet",
        title="Tiny-ImageNet-200",
        class_names=tuple(str(label) for label in range(200)),
        shape=(3, 64, 64),
        counts=(100_000, 10_000),
        mean=(0.4802, 0.4481, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
        augmentation="natural",
        folder="tiny_imagenet",
        places=("", "tiny_imagenet"),
        layouts=(
            Layout((f"{tiny_imagenet.FOLDER}/train", tiny_imagenet.ANNOTATIONS), tiny_imagenet.read_folder),
            Layout((tiny_imagenet.ARCHIVE,), tiny_imagenet.read_archive),
        ),
        downloads=(
            Download(
                tiny_imagenet.ARCHIVE,
                (f"http://cs231n.stanford.edu/{tiny_imagenet.ARCHIVE}",),
                248_100_043,
                "90528d7ca1a48142e341f4ef8d21d0de",
            ),
        ),
        note="the test part is the published validation part",
    ),
    "emnist": emnist(),
}


def source_of(name: str) -> Source:
    """The published data set of that name; `emnist:SPLIT` is one split of EMNIST.

    >>> source_of("emnist:letters").classes
    26
    """
    base, _, variant = name.partition(":")
    if base not in SOURCES:
        raise unknown("published data set", name, SOURCES)
    if not variant:
        return SOURCES[base]
    if base != "emnist":
        raise UserError(
            f"unknown data set {name!r}: {base} has no variants, write {base!r}, or {base}:images=5000 for a part"
        )
    return emnist(variant)
