/* name_lists.c - published class lists, compiled in, with their publishers' spelling and
 * capitals. */
#include "name_lists.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ONE = 1, MANY = 2, BOTH = 3 }; /* sets of a class: ImageNet-1K, 21K */

static const struct {
    uint32_t synset;
    uint32_t sets;
    const char *words;
} wordnet[] = {
#define ONE(synset, words)  { synset, ONE, words },
#define MANY(synset, words) { synset, MANY, words },
#define BOTH(synset, words) { synset, BOTH, words },
#include "wordnet.inc"
#undef ONE
#undef MANY
#undef BOTH
};
enum { SYNSETS = sizeof wordnet / sizeof wordnet[0] };

static const char *const cifar10[] = {
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
};

static const char *const cifar100[] = {
    "apple",       "aquarium fish", "baby",      "bear",       "beaver",       "bed",
    "bee",         "beetle",        "bicycle",   "bottle",     "bowl",         "boy",
    "bridge",      "bus",           "butterfly", "camel",      "can",          "castle",
    "caterpillar", "cattle",        "chair",     "chimpanzee", "clock",        "cloud",
    "cockroach",   "couch",         "crab",      "crocodile",  "cup",          "dinosaur",
    "dolphin",     "elephant",      "flatfish",  "forest",     "fox",          "girl",
    "hamster",     "house",         "kangaroo",  "keyboard",   "lamp",         "lawn mower",
    "leopard",     "lion",          "lizard",    "lobster",    "man",          "maple tree",
    "motorcycle",  "mountain",      "mouse",     "mushroom",   "oak tree",     "orange",
    "orchid",      "otter",         "palm tree", "pear",       "pickup truck", "pine tree",
    "plain",       "plate",         "poppy",     "porcupine",  "possum",       "rabbit",
    "raccoon",     "ray",           "road",      "rocket",     "rose",         "sea",
    "seal",        "shark",         "shrew",     "skunk",      "skyscraper",   "snail",
    "snake",       "spider",        "squirrel",  "streetcar",  "sunflower",    "sweet pepper",
    "table",       "tank",          "telephone", "television", "tiger",        "tractor",
    "train",       "trout",         "tulip",     "turtle",     "wardrobe",     "whale",
    "willow tree", "wolf",          "woman",     "worm",
};

static const char *const food101[] = {
    "Apple pie",
    "Baby back ribs",
    "Baklava",
    "Beef carpaccio",
    "Beef tartare",
    "Beet salad",
    "Beignets",
    "Bibimbap",
    "Bread pudding",
    "Breakfast burrito",
    "Bruschetta",
    "Caesar salad",
    "Cannoli",
    "Caprese salad",
    "Carrot cake",
    "Ceviche",
    "Cheese plate",
    "Cheesecake",
    "Chicken curry",
    "Chicken quesadilla",
    "Chicken wings",
    "Chocolate cake",
    "Chocolate mousse",
    "Churros",
    "Clam chowder",
    "Club sandwich",
    "Crab cakes",
    "Creme brulee",
    "Croque madame",
    "Cup cakes",
    "Deviled eggs",
    "Donuts",
    "Dumplings",
    "Edamame",
    "Eggs benedict",
    "Escargots",
    "Falafel",
    "Filet mignon",
    "Fish and chips",
    "Foie gras",
    "French fries",
    "French onion soup",
    "French toast",
    "Fried calamari",
    "Fried rice",
    "Frozen yogurt",
    "Garlic bread",
    "Gnocchi",
    "Greek salad",
    "Grilled cheese sandwich",
    "Grilled salmon",
    "Guacamole",
    "Gyoza",
    "Hamburger",
    "Hot and sour soup",
    "Hot dog",
    "Huevos rancheros",
    "Hummus",
    "Ice cream",
    "Lasagna",
    "Lobster bisque",
    "Lobster roll sandwich",
    "Macaroni and cheese",
    "Macarons",
    "Miso soup",
    "Mussels",
    "Nachos",
    "Omelette",
    "Onion rings",
    "Oysters",
    "Pad thai",
    "Paella",
    "Pancakes",
    "Panna cotta",
    "Peking duck",
    "Pho",
    "Pizza",
    "Pork chop",
    "Poutine",
    "Prime rib",
    "Pulled pork sandwich",
    "Ramen",
    "Ravioli",
    "Red velvet cake",
    "Risotto",
    "Samosa",
    "Sashimi",
    "Scallops",
    "Seaweed salad",
    "Shrimp and grits",
    "Spaghetti bolognese",
    "Spaghetti carbonara",
    "Spring rolls",
    "Steak",
    "Strawberry shortcake",
    "Sushi",
    "Tacos",
    "Takoyaki",
    "Tiramisu",
    "Tuna tartare",
    "Waffles",
};

static const char *const ip102[] = {
    "rice leaf roller",
    "rice leaf caterpillar",
    "paddy stem maggot",
    "asiatic rice borer",
    "yellow rice borer",
    "rice gall midge",
    "Rice Stemfly",
    "brown plant hopper",
    "white backed plant hopper",
    "small brown plant hopper",
    "rice water weevil",
    "rice leafhopper",
    "grain spreader thrips",
    "rice shell pest",
    "grub",
    "mole cricket",
    "wireworm",
    "white margined moth",
    "black cutworm",
    "large cutworm",
    "yellow cutworm",
    "red spider",
    "corn borer",
    "army worm",
    "aphids",
    "Potosiabre vitarsis",
    "peach borer",
    "english grain aphid",
    "green bug",
    "bird cherry-oataphid",
    "wheat blossom midge",
    "penthaleus major",
    "longlegged spider mite",
    "wheat phloeothrips",
    "wheat sawfly",
    "cerodonta denticornis",
    "beet fly",
    "flea beetle",
    "cabbage army worm",
    "beet army worm",
    "Beet spot flies",
    "meadow moth",
    "beet weevil",
    "sericaorient alismots chulsky",
    "alfalfa weevil",
    "flax budworm",
    "alfalfa plant bug",
    "tarnished plant bug",
    "Locustoidea",
    "lytta polita",
    "legume blister beetle",
    "blister beetle",
    "therioaphis maculata Buckton",
    "odontothrips loti",
    "Thrips",
    "alfalfa seed chalcid",
    "Pieris canidia",
    "Apolygus lucorum",
    "Limacodidae",
    "Viteus vitifoliae",
    "Colomerus vitis",
    "Brevipoalpus lewisi McGregor",
    "oides decempunctata",
    "Polyphagotars onemus latus",
    "Pseudococcus comstocki Kuwana",
    "parathrene regalis",
    "Ampelophaga",
    "Lycorma delicatula",
    "Xylotrechus",
    "Cicadella viridis",
    "Miridae",
    "Trialeurodes vaporariorum",
    "Erythroneura apicalis",
    "Papilio xuthus",
    "Panonchus citri McGregor",
    "Phyllocoptes oleiverus ashmead",
    "Icerya purchasi Maskell",
    "Unaspis yanonensis",
    "Ceroplastes rubens",
    "Chrysomphalus aonidum",
    "Parlatoria zizyphus Lucus",
    "Nipaecoccus vastalor",
    "Aleurocanthus spiniferus",
    "Tetradacus c Bactrocera minax",
    "Dacus dorsalis(Hendel)",
    "Bactrocera tsuneonis",
    "Prodenia litura",
    "Adristyrannus",
    "Phyllocnistis citrella Stainton",
    "Toxoptera citricidus",
    "Toxoptera aurantii",
    "Aphis citricola Vander Goot",
    "Scirtothrips dorsalis Hood",
    "Dasineura sp",
    "Lawana imitata Melichar",
    "Salurnis marginella Guerr",
    "Deporaus marginatus Pascoe",
    "Chlumetia transversa",
    "Mango flat beak leafhopper",
    "Rhytidodera bowrinii white",
    "Sternochetus frigidus",
    "Cicadellidae",
};

const name_list name_lists[] = {
    { "imagenet", 1000, NULL },
    { "imagenet21k", 21841, NULL },
    { "cifar10", 10, cifar10 },
    { "cifar100", 100, cifar100 },
    { "food101", 101, food101 },
    { "ip102", 102, ip102 },
    { 0 },
};

const name_list *name_list_find(const char *id)
{
    for (const name_list *l = name_lists; l->id; l++)
        if (strcmp(l->id, id) == 0) return l;
    return NULL;
}

const char *name_list_at(const name_list *l, int64_t i, char wnid[WNID_SIZE])
{
    const uint32_t set = l->count == 1000 ? ONE : MANY;
    wnid[0] = '\0';
    if (l->names) return l->names[i];
    int k = 0;
    while (!(wordnet[k].sets & set) || i-- > 0) k++;
    snprintf(wnid, WNID_SIZE, "n%08u", (unsigned)wordnet[k].synset % 100000000);
    return wordnet[k].words;
}

const char *wnid_words(const char *wnid)
{
    if (wnid[0] != 'n' || strlen(wnid) != 9 || strspn(wnid + 1, "0123456789") != 8) return NULL;
    const unsigned long synset = strtoul(wnid + 1, NULL, 10);
    int low = 0, high = SYNSETS;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (wordnet[middle].synset < synset)
            low = middle + 1;
        else
            high = middle;
    }
    return low < SYNSETS && wordnet[low].synset == synset ? wordnet[low].words : NULL;
}

/* A folder's name is the class's in lower case, with underscores for blanks. */
static bool is_folder(const char *folder, const char *name)
{
    for (; *name && *folder == (*name == ' ' ? '_' : tolower((unsigned char)*name)); name++)
        folder++;
    return !*name && !*folder;
}

const char *food_words(const char *folder)
{
    for (size_t i = 0; i < sizeof food101 / sizeof food101[0]; i++)
        if (is_folder(folder, food101[i])) return food101[i];
    return NULL;
}
